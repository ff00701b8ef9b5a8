//! The messages of Envoy's protocol, its service and Kuadrant's: made from the files in `proto/` by the test `proto`, which
//! fails where the two differ.
// As the generator writes it.
#![allow(clippy::all, clippy::pedantic, missing_docs)]

/// The packages of Envoy, of which each part names others by its place.
mod envoy {
    pub mod config {
        pub mod core {
            pub mod v3 {
                include!("proto/envoy.config.core.v3.rs");
            }
        }
    }
    pub mod extensions {
        pub mod common {
            pub mod ratelimit {
                pub mod v3 {
                    include!("proto/envoy.extensions.common.ratelimit.v3.rs");
                }
            }
        }
    }
    pub mod r#type {
        pub mod v3 {
            include!("proto/envoy.r#type.v3.rs");
        }
    }
    pub mod service {
        pub mod ratelimit {
            pub mod v3 {
                include!("proto/envoy.service.ratelimit.v3.rs");
            }
        }
    }
}

/// The package of Kuadrant, which names those of Envoy.
mod kuadrant {
    pub mod service {
        pub mod ratelimit {
            pub mod v1 {
                include!("proto/kuadrant.service.ratelimit.v1.rs");
            }
        }
    }
}

pub use envoy::config::core::v3::HeaderValue;
pub use envoy::extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor};
pub use envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_response, rate_limit_service_client,
    rate_limit_service_server,
};
pub use envoy::r#type::v3::RateLimitUnit;
pub use kuadrant::service::ratelimit::v1::rate_limit_service_client as kuadrant_service_client;
pub use kuadrant::service::ratelimit::v1::rate_limit_service_server as kuadrant_service_server;
