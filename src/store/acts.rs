//! The acts that the engine alone decides, on every database alike: leases, units, predictions and queues.

/// The acts of a store, by its own `holding!`, in a transaction that holds the bucket from the first look on, and its own
/// `looking!`, which holds nothing.
macro_rules! acts {
    ($store:ty) => {
        use $crate::decide::{Shape, Standing};
        use $crate::item::{Item, Noted, Offer, Offered, Said, Size, Take, Taken};
        use $crate::lease::{Lease, Want};
        use $crate::engine::{self as by_engine, Name};
        use $crate::store::{Taking, Took};

        impl $store {
            pub async fn grant(&self, zone_id: i32, want: &Want, txn: Uuid, terms: Terms) -> Result<Lease> {
                holding!(
                    self, terms, session => by_engine::lease(&mut session, zone_id, want, txn).await,
                    lease => lease.replayed
                )
            }

            pub async fn leases(&self, name: Name<'_>, terms: Terms) -> Result<Vec<Standing>> {
                looking!(self, terms, session => by_engine::standing(&mut session, name).await)
            }

            pub async fn take_units(&self, taking: &Taking, terms: Terms) -> Result<Option<Took>> {
                holding!(
                    self, terms, session => by_engine::take_units(&mut session, taking).await,
                    took => took.is_none()
                )
            }

            pub async fn reserve_predicted(
                &self,
                request: &Request,
                terms: Terms,
            ) -> Result<(Decision, i64)> {
                holding!(self, terms, session => by_engine::reserve(&mut session, request).await)
            }

            pub async fn known_shape(
                &self,
                name: Name<'_>,
                shape: &str,
                terms: Terms,
            ) -> Result<Option<Shape>> {
                looking!(self, terms, session => by_engine::known(&mut session, name, shape).await)
            }

            pub async fn offer(
                &self,
                zone_id: i32,
                offer: &Offer,
                txn: Uuid,
                terms: Terms,
            ) -> Result<Option<Offered>> {
                holding!(self, terms, session => by_engine::offer(&mut session, zone_id, offer, txn).await)
            }

            pub async fn take_next(&self, zone_id: i32, take: &Take, terms: Terms) -> Result<Option<Taken>> {
                holding!(
                    self, terms, session => by_engine::take(&mut session, zone_id, take).await,
                    taken => taken.as_ref().is_some_and(|taken| taken.items.is_empty())
                )
            }

            pub async fn progress(&self, zone_id: i32, said: &Said, terms: Terms) -> Result<Option<Noted>> {
                holding!(self, terms, session => by_engine::progress(&mut session, zone_id, said).await)
            }

            pub async fn item(&self, name: Name<'_>, txn: Uuid, terms: Terms) -> Result<Option<Item>> {
                looking!(self, terms, session => by_engine::item(&mut session, name, txn).await)
            }

            pub async fn dead(
                &self,
                name: Name<'_>,
                after: Option<Uuid>,
                most: u32,
                terms: Terms,
            ) -> Result<Vec<Item>> {
                looking!(self, terms, session => by_engine::dead(&mut session, name, after, most).await)
            }

            pub async fn size(&self, name: Name<'_>, terms: Terms) -> Result<Size> {
                looking!(self, terms, session => by_engine::size(&mut session, name).await)
            }
        }
    };
}
