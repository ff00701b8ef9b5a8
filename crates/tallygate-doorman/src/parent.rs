//! The level above a region, where it speaks Doorman's protocol.

use std::time::{Duration, SystemTime};

use tallygate::capacity::{Demand, Lent, Upstream};
use tonic::Status;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, Bytes, StdError};

use crate::ask::{priority, units};
use crate::proto::capacity_client::CapacityClient;
use crate::proto::{GetServerCapacityRequest, PriorityBandAggregate, ServerCapacityResourceRequest};

/// A server of Doorman's protocol, this one or Doorman, that a [`Region`](tallygate::capacity::Region) asks for the capacity
/// of a resource.
///
/// The length of its leases is reckoned from the second of their end by the clock of this machine: it takes clocks that are
/// set, where [leases of another database](tallygate::capacity::ServerLeases) do not.
#[derive(Clone, Debug)]
pub struct Parent<T> {
    client: CapacityClient<T>,
    server_id: String,
    resource_id: String,
}

impl<T> Parent<T> {
    /// Asks by a client, for a server of this name, for a resource.
    pub fn new(
        client: CapacityClient<T>,
        server_id: impl Into<String>,
        resource_id: impl Into<String>,
    ) -> Self {
        Self { client, server_id: server_id.into(), resource_id: resource_id.into() }
    }
}

impl<T> Upstream for Parent<T>
where
    T: GrpcService<Body> + Clone + Send + Sync,
    T::Error: Into<StdError>,
    T::Future: Send,
    T::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    type Error = Status;

    async fn ask(&self, bands: &[Demand]) -> Result<Lent, Status> {
        let wants = bands.iter().map(|demand| PriorityBandAggregate {
            priority: priority(demand.band),
            num_clients: demand.clients.into(),
            wants: demand.wants as f64,
        });
        let resource_id = self.resource_id.clone();
        let resource = ServerCapacityResourceRequest { resource_id, has: None, wants: wants.collect() };
        let request =
            GetServerCapacityRequest { server_id: self.server_id.clone(), resource: vec![resource] };
        let sent = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let answer = self.client.clone().get_server_capacity(request).await?.into_inner();
        if let Some(mastership) = answer.mastership {
            return Err(Status::unavailable(format!(
                "another server is the master: {}; ask that one",
                mastership.master_address.as_deref().unwrap_or("nobody knows which")
            )));
        }
        let mut answers = answer.response.into_iter();
        let gets = answers.find(|answer| answer.resource_id == self.resource_id).map(|answer| answer.gets);
        let gets = gets.ok_or_else(|| {
            Status::internal(format!("the answer lacks the resource {:?}", self.resource_id))
        })?;
        let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        Ok(Lent {
            has: units("gets.capacity", &self.resource_id, gets.capacity)?,
            length: seconds(gets.expiry_time).saturating_sub(sent),
            refresh: seconds(gets.refresh_interval.max(1)),
        })
    }
}
