//! The service: what clients and servers of Doorman ask, and what they are granted.

use std::fmt;
use std::sync::Arc;

use tallygate::capacity::{Demand, Lease, Want};
use tallygate::{Limiter, Policy};
use tonic::{Extensions, Request, Response, Status};

use crate::ask::{algorithm, band, demands, held, lease, priority, units};
use crate::asker::Asker;
use crate::failure::{failed, unknown};
use crate::proto::capacity_server::{Capacity, CapacityServer};
use crate::proto::{
    DiscoveryRequest, DiscoveryResponse, GetCapacityRequest, GetCapacityResponse, GetServerCapacityRequest,
    GetServerCapacityResponse, Mastership, ReleaseCapacityRequest, ReleaseCapacityResponse, ResourceRequest,
    ResourceResponse, ServerCapacityResourceResponse,
};
use crate::template::Template;

/// The most resources of a request, and the most bands of one of them.
const RESOURCES_MAX: usize = 1_000;

/// Doorman's service `doorman.Capacity`. See the [crate](crate) for an example. Clones share everything.
///
/// A resource is the bucket of its name, in the zone that [`Template`]s choose: the one whose pattern is its very name; else
/// the zone that is called as it; else the first whose pattern fits.
#[derive(Clone)]
pub struct Doorman {
    limiter: Limiter,
    templates: Arc<[Template]>,
    address: Option<String>,
}

/// A resource that may be asked for.
struct Found {
    resource: String,
    zone: String,
    policy: Policy,
}

impl Doorman {
    /// The service of a limiter whose user has the role *app*.
    pub fn new(limiter: Limiter, templates: impl Into<Arc<[Template]>>) -> Self {
        Self { limiter, templates: templates.into(), address: None }
    }

    /// The address of the master, which is whoever is asked there: of one server, or of what stands before several.
    #[must_use]
    pub fn at(self, address: impl Into<String>) -> Self {
        Self { address: Some(address.into()), ..self }
    }

    /// The service for a server of tonic.
    pub fn into_service(self) -> CapacityServer<Self> {
        CapacityServer::new(self)
    }

    async fn found(&self, asker: Option<&Asker>, resource: String) -> Result<Found, Status> {
        if resource.is_empty() {
            return Err(Status::invalid_argument("resource_id is empty; name a resource"));
        }
        let fitting = |fits: fn(&Template, &str) -> bool| {
            self.templates.iter().find(|template| fits(template, &resource)).map(Template::zone)
        };
        let mut zone = fitting(Template::is).unwrap_or(&resource);
        let mut policy = self.limiter.policy(zone).await;
        // No zone is called so, or none can be.
        let is_none = |error: &tallygate::Error| error.is_unknown_zone() || error.is_invalid();
        if zone == resource && policy.as_ref().is_err_and(is_none) {
            zone = fitting(Template::fits).ok_or_else(|| unknown(&resource))?;
            policy = self.limiter.policy(zone).await;
        }
        let (_, policy) = policy.map_err(|error| failed(&error, &resource))?;
        if let Some(asker) = asker.filter(|asker| !(asker.may)(zone)) {
            return Err(Status::permission_denied(format!(
                "{:?} is not for zone {zone:?}, of which resource {resource:?} is; use a token whose zones name it",
                asker.name
            )));
        }
        if policy.sharing().is_none() {
            return Err(Status::failed_precondition(format!(
                "resource {resource:?} is of zone {zone:?}, whose {} hands out no capacity; use the algorithm capacity",
                policy.algorithm()
            )));
        }
        let zone = zone.to_owned();
        Ok(Found { resource, zone, policy })
    }

    async fn grant(&self, wants: Vec<Want>, resources: &[Found]) -> Result<Vec<Lease>, Status> {
        for (want, Found { resource, .. }) in wants.iter().zip(resources) {
            want.validate().map_err(|error| failed(&error, resource))?;
        }
        let leases = self.limiter.leases();
        let mut granted = Vec::with_capacity(wants.len());
        for (want, Found { resource, .. }) in wants.into_iter().zip(resources) {
            granted.push(leases.get(want).await.map_err(|error| failed(&error, resource))?);
        }
        Ok(granted)
    }
}

impl Found {
    fn want(&self, client: &str, wants: i64) -> Want {
        Want::new(&self.zone, &self.resource, client, wants)
    }
}

impl fmt::Debug for Doorman {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorman").field("templates", &self.templates).finish_non_exhaustive()
    }
}

/// The client, or the server, as the ledger knows it.
fn client(asker: Option<&Asker>, what: &str, id: &str) -> Result<String, Status> {
    if id.is_empty() {
        return Err(Status::invalid_argument(format!("{what} is empty; name who asks")));
    }
    Ok(asker.map_or_else(|| id.to_owned(), |asker| format!("{}/{id}", asker.name)))
}

/// May the things that it asks be so important?
fn may_claim(asker: Option<&Asker>, band: u8) -> Result<(), Status> {
    match asker.filter(|asker| band < asker.band) {
        Some(asker) => Err(Status::permission_denied(format!(
            "{:?} may claim priorities up to {}, not {}; claim one of those, or ask with a token of a more important band",
            asker.name,
            priority(asker.band),
            priority(band)
        ))),
        None => Ok(()),
    }
}

fn bounded(what: &str, count: usize) -> Result<(), Status> {
    match count {
        0..=RESOURCES_MAX => Ok(()),
        _ => Err(Status::invalid_argument(format!(
            "{count} {what} in one request are too many; send at most {RESOURCES_MAX}"
        ))),
    }
}

fn asker(extensions: &Extensions) -> Option<Asker> {
    extensions.get().cloned()
}

#[tonic::async_trait]
impl Capacity for Doorman {
    async fn discovery(
        &self,
        request: Request<DiscoveryRequest>,
    ) -> Result<Response<DiscoveryResponse>, Status> {
        let asked_at = || asker(request.extensions())?.asked_at;
        let master_address = self.address.clone().or_else(asked_at);
        Ok(Response::new(DiscoveryResponse { mastership: Mastership { master_address }, is_master: true }))
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let asker = asker(request.extensions());
        let GetCapacityRequest { client_id, resource } = request.into_inner();
        let client = client(asker.as_ref(), "client_id", &client_id)?;
        bounded("resources", resource.len())?;
        let (mut wanted, mut found) = (Vec::new(), Vec::new());
        for ResourceRequest { resource_id, priority, has, wants } in resource {
            held(&resource_id, has.as_ref())?;
            let wants = units("wants", &resource_id, wants)?;
            let band = band(priority);
            may_claim(asker.as_ref(), band)?;
            let resource = self.found(asker.as_ref(), resource_id).await?;
            wanted.push(resource.want(&client, wants).band(band));
            found.push(resource);
        }
        let granted = self.grant(wanted, &found).await?;
        let response = found.into_iter().zip(granted).map(|(found, granted)| ResourceResponse {
            resource_id: found.resource,
            safe_capacity: Some(granted.safe_capacity as f64),
            gets: lease(&[granted]),
        });
        Ok(Response::new(GetCapacityResponse { response: response.collect(), mastership: None }))
    }

    async fn get_server_capacity(
        &self,
        request: Request<GetServerCapacityRequest>,
    ) -> Result<Response<GetServerCapacityResponse>, Status> {
        let asker = asker(request.extensions());
        let GetServerCapacityRequest { server_id, resource } = request.into_inner();
        let server = client(asker.as_ref(), "server_id", &server_id)?;
        bounded("resources", resource.len())?;
        let mut asked: Vec<(Found, Vec<Demand>)> = Vec::new();
        for resource in resource {
            bounded("bands", resource.wants.len())?;
            held(&resource.resource_id, resource.has.as_ref())?;
            let demands = demands(&resource.resource_id, &resource.wants)?;
            demands.iter().try_for_each(|demand| may_claim(asker.as_ref(), demand.band))?;
            asked.push((self.found(asker.as_ref(), resource.resource_id).await?, demands));
        }
        let mut response = Vec::with_capacity(asked.len());
        for (Found { resource, zone, policy }, demands) in asked {
            let leases = self.limiter.leases().for_server(zone, &resource, &server);
            let granted = leases.get(&demands).await.map_err(|error| failed(&error, &resource))?;
            response.push(ServerCapacityResourceResponse {
                resource_id: resource,
                gets: lease(&granted),
                algorithm: algorithm(&policy),
                safe_capacity: granted.last().map(|last| last.safe_capacity as f64),
            });
        }
        Ok(Response::new(GetServerCapacityResponse { response, mastership: None }))
    }

    async fn release_capacity(
        &self,
        request: Request<ReleaseCapacityRequest>,
    ) -> Result<Response<ReleaseCapacityResponse>, Status> {
        let asker = asker(request.extensions());
        let ReleaseCapacityRequest { client_id, resource_id } = request.into_inner();
        let client = client(asker.as_ref(), "client_id", &client_id)?;
        bounded("resources", resource_id.len())?;
        let mut found = Vec::with_capacity(resource_id.len());
        for resource in resource_id {
            found.push(self.found(asker.as_ref(), resource).await?);
        }
        self.grant(found.iter().map(|found| found.want(&client, 0)).collect(), &found).await?;
        Ok(Response::new(ReleaseCapacityResponse { mastership: None }))
    }
}
