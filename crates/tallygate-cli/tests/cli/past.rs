//! A ledger of a time that is past, the same in each run: by a clock that the test sets, under transactions that it names.

use tallygate::testing::Clock;
use tallygate::uuid::Uuid;
use tallygate::{Check, Decision, Limiter};
use tokio::runtime::Runtime;

use super::program::Program;

pub struct Past {
    runtime: Runtime,
    pub limiter: Limiter,
    clock: Clock,
    next: u128,
}

impl Past {
    /// Makes the program's ledger.
    pub fn of(program: &Program) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = Clock::at("2026-11-20T08:00:00Z".parse().unwrap());
        let url = format!("sqlite:{}", program.path("tallygate.db").display());
        let limiter = runtime.block_on(Limiter::connect(&url)).unwrap().with_clock(&clock).unwrap();
        Self { runtime, limiter, clock, next: 0x019a_e3f2_7a55_7c1e_9d0b_0000_0000_0000 }
    }

    pub fn at(&self, time: &str) -> &Self {
        self.clock.set(time.parse().unwrap());
        self
    }

    pub fn wait<T>(&self, work: impl Future<Output = tallygate::Result<T>>) -> T {
        self.runtime.block_on(work).unwrap()
    }

    /// The next transaction; transactions are numbered.
    pub fn txn(&mut self) -> Uuid {
        self.next += 1;
        Uuid::from_u128(self.next)
    }

    pub fn check(&mut self, check: Check) -> Decision {
        let txn = self.txn();
        self.wait(self.limiter.check(check.txn(txn)))
    }

    /// Lets go of the file.
    pub fn end(self) {
        self.runtime.block_on(self.limiter.close()).unwrap();
    }
}
