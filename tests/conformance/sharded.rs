//! Several databases as one: PostgreSQL, MySQL and MariaDB together, or three files of SQLite.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use tallygate::audit::report::ReportOn;
use tallygate::audit::verify::{FaultKind, Verify, Verifying};
use tallygate::decide::Override;
use tallygate::ledger::History;
use tallygate::policy::{CalendarUnit, Durability, OnOutage, TimeZoneName, Zone};
use tallygate::schema::{Migrator, Rebalanced, Role, Upkeep};
use tallygate::{
    Charged, Check, Config, Error, ErrorKind, Journal, Limiter, Policy, Reason, Result, Spanning,
};
use uuid::Uuid;

use crate::child::{Calls, Child, Work};
use crate::db::{Db, Engine, connected, log};
use crate::proxy::Proxy;
use crate::server::user;

const NAMES: [&str; 3] = ["eu-1", "eu-2", "eu-3"];

/// Three databases under their names.
struct Three([Db; 3]);

impl Three {
    async fn beside(first: Db) -> Self {
        let three = Self::nameless(first).await;
        three.name(&NAMES).await;
        three
    }

    async fn nameless(first: Db) -> Self {
        let others = match first.engine {
            Engine::Sqlite => [Engine::Sqlite; 2],
            _ => [Engine::MySql, Engine::MariaDb],
        };
        let [second, third] =
            [Db::create(others[0], "sharded::second").await, Db::create(others[1], "sharded::third").await];
        Self([first, second, third])
    }

    /// Tells those of a list what they are called.
    async fn name(&self, list: &[&str]) {
        for (name, url) in self.listed(list, Role::Owner) {
            Migrator::new(&url).unwrap().named(name, list).unwrap().apply().await.unwrap();
        }
    }

    fn urls(&self, role: Role) -> Vec<(&'static str, String)> {
        self.listed(&NAMES, role)
    }

    /// The URLs of a list, whose names may say at which stage they are.
    fn listed<'n>(&self, list: &[&'n str], role: Role) -> Vec<(&'n str, String)> {
        let url = |name: &str| {
            let place = NAMES.iter().position(|own| name.split('/').next() == Some(own)).unwrap();
            self.url(&self.0[place], role)
        };
        list.iter().map(|name| (*name, url(name))).collect()
    }

    fn url(&self, db: &Db, role: Role) -> String {
        if role == Role::Owner { db.url.clone() } else { db.url_as(role) }
    }

    async fn limiter(&self) -> Limiter {
        self.limiter_with(self.0[0].config()).await
    }

    async fn limiter_with(&self, config: Config) -> Limiter {
        house(|role| self.urls(role), config).await.unwrap()
    }

    async fn limiter_of(&self, list: &[&str]) -> Result<Limiter> {
        house(|role| self.listed(list, role), self.0[0].config()).await
    }

    async fn owner_of(&self, list: &[&str]) -> Limiter {
        Limiter::sharded(self.listed(list, Role::Owner), self.0[0].config()).await.unwrap()
    }

    /// Keys that one of the databases decides.
    async fn keys(&self, limiter: &Limiter, name: &str, count: usize) -> Vec<String> {
        let mut keys = Vec::new();
        for key in (0..).map(|n| format!("user:{n}")) {
            if limiter.shard_of("login", &key).await.unwrap().0 == name {
                keys.push(key);
            }
            if keys.len() == count {
                break;
            }
        }
        keys
    }

    /// The number of these keys that one of the databases decides.
    async fn of(&self, limiter: &Limiter, keys: &[String], name: &str) -> i64 {
        let own = self.keys(limiter, name, keys.len()).await;
        keys.iter().filter(|key| own.contains(key)).count() as i64
    }

    /// Faults of all databases, in words.
    async fn faults(&self, limiter: &Limiter) -> Vec<String> {
        let mut faults = Vec::new();
        let tell = |told| {
            if let Verifying::Fault(fault) = told {
                faults.push(format!("{fault:?}"));
            }
        };
        limiter.auditor().verify(&Verify::default(), tell).await.unwrap();
        faults
    }
}

/// A limiter as a house has it, over the databases that are listed for a role.
async fn house<'n>(urls: impl Fn(Role) -> Vec<(&'n str, String)>, config: Config) -> Result<Limiter> {
    let app = Limiter::sharded(urls(Role::App), config).await?;
    let operator = Limiter::sharded(urls(Role::Operator), config).await?;
    let auditor = Limiter::sharded(urls(Role::Auditor), config).await?;
    Ok(app.with_operator(&operator).with_auditor(&auditor))
}

async fn set(limiter: &Limiter, zone: &str, rate: i64) -> Zone {
    limiter.operator().set_zone(zone, &log(rate, 3600), None, "test").await.unwrap()
}

async fn refusal(limiter: Result<Limiter>) -> Error {
    match limiter {
        Ok(_) => panic!("it connected"),
        Err(error) => error,
    }
}

pub async fn each_key_is_decided_by_one_database_and_exactly(db: Db) {
    let three = Three::beside(db).await;
    let limiter = three.limiter().await;
    set(&limiter, "login", 5).await;
    let keys: Vec<String> = (0..24).map(|n| format!("user:{n}")).collect();
    let list: Vec<String> = three.urls(Role::App).iter().map(|(name, url)| format!("{name}={url}")).collect();
    let work = Work::Calls(Calls {
        url: list.join(" "),
        zone: "login".to_owned(),
        keys: keys.clone(),
        serializable: false,
        clients: 2,
        calls: 3,
    });
    let mut children = vec![Child::start(&work).await, Child::start(&work).await];
    for child in &mut children {
        child.go().await;
    }
    let mine =
        join_all((0..3).flat_map(|_| keys.iter()).map(|key| limiter.check(Check::new("login", key)))).await;
    let mut allowed: BTreeMap<String, usize> = BTreeMap::new();
    let mut count =
        |key: &str, blocked: bool| *allowed.entry(key.to_owned()).or_default() += usize::from(!blocked);
    for decision in mine {
        let decision = decision.unwrap();
        count(&decision.key, decision.blocked);
    }
    let mut asked = 3 * keys.len();
    for mut child in children {
        for told in child.answers().await {
            count(told["key"].as_str().unwrap(), told["blocked"].as_bool().unwrap());
            asked += 1;
        }
    }
    assert_eq!(asked, (3 + 2 * 2 * 3) * keys.len());
    assert!(allowed.len() == keys.len() && allowed.values().all(|&allowed| allowed == 5), "{allowed:?}");
    let mut rows = 0;
    for (name, db) in NAMES.iter().zip(&three.0) {
        db.assert_ledger_is_whole().await;
        let own = three.keys(&limiter, name, 100).await;
        let own = keys.iter().filter(|key| own.contains(key)).count();
        assert!(own > 0);
        assert_eq!(db.number("select count(*) from zone_bucket_lock").await, own as i64, "{name}");
        rows += db.rows().await;
    }
    assert_eq!(rows, asked as i64);
    assert_eq!(three.faults(&limiter).await, [""; 0]);
}

pub async fn zones_have_one_number_and_one_version_everywhere(db: Db) {
    let three = Three::nameless(db).await;
    // The first in the order of names comes last to the list: it is given all of what the others have.
    three.name(&NAMES[1..]).await;
    let limiter = three.limiter_of(&NAMES[1..]).await.unwrap();
    set(&limiter, "tried", 1).await;
    three.owner_of(&NAMES[1..]).await.owner().remove_zone("tried").await.unwrap();
    for rate in [5, 6, 7] {
        set(&limiter, "login", rate).await;
    }
    set(&limiter, "search", 3).await;
    let list = ["eu-1/known", "eu-2", "eu-3"];
    three.name(&list).await;
    let grown = three.limiter_of(&list).await.unwrap();
    let lacks = three.faults(&grown).await;
    assert!(!lacks.is_empty() && lacks.iter().all(|fault| fault.contains("WrongZone")), "{lacks:?}");
    let login = set(&grown, "login", 7).await;
    assert_eq!((login.id, login.version), (2, 3));
    assert_eq!(set(&grown, "search", 3).await.version, 1);
    let more = set(&grown, "more", 1).await;
    let daily =
        Policy::calendar(1, CalendarUnit::Day, TimeZoneName::with_clock("Asia/Tokyo", "2999a 0").unwrap());
    grown.operator().set_zone("more", &daily.unwrap(), None, "test").await.unwrap();
    assert_eq!(set(&grown, "login", 8).await.version, 4);
    let mut seen = Vec::new();
    for db in &three.0 {
        let one = db.limiter().await;
        let mut zones = Vec::new();
        for zone in one.operator().zones().await.unwrap() {
            let versions = one.operator().zone_versions(&zone).await.unwrap();
            let versions: Vec<_> = versions
                .into_iter()
                .map(|v| (v.version, v.policy, v.description, v.changed_at, v.changed_by))
                .collect();
            zones.push((zone, versions));
        }
        seen.push(zones);
    }
    assert!(seen[0].len() == 3 && seen[0] == seen[1] && seen[1] == seen[2], "{seen:?}");
    assert!(more.id > 3, "{more:?}");
    assert_eq!(three.faults(&grown).await, [""; 0]);
    // A zone that is set in one of them alone is told of, and not made the same by setting it again.
    let alone = three.0[1].limiter().await;
    set(&alone, "login", 9).await;
    let faults = three.faults(&grown).await;
    assert!(faults.len() == 1 && faults[0].contains("WrongZone") && faults[0].contains("eu-2"), "{faults:?}");
    set(&alone, "own", 9).await;
    let taken = grown.operator().set_zone("other", &log(1, 60), None, "test").await.unwrap_err();
    assert!(taken.is_invalid() && taken.to_string().contains("apart"), "{taken}");
}

pub async fn what_one_database_cannot_keep_is_set_in_none(db: Db) {
    let three = Three::beside(db).await;
    let limiter = three.limiter().await;
    let relaxed = log(5, 60).with_durability(Durability::Relaxed);
    let error = limiter.operator().set_zone("search", &relaxed, None, "test").await.unwrap_err();
    assert!(error.is_invalid() && error.to_string().starts_with("eu-2: "), "{error}");
    assert_eq!(limiter.operator().zones().await.unwrap(), []);
}

pub async fn a_database_answers_to_its_own_name_only(db: Db) {
    let three = Three::beside(db).await;
    let [(one, first), (two, second), (_, third)] = three.urls(Role::App).try_into().unwrap();
    let connect = async |list: &[(&str, &str)]| Limiter::sharded(list.to_vec(), three.0[0].config()).await;
    let swapped = refusal(connect(&[(one, &second), (two, &first), ("eu-3", &third)]).await).await;
    assert!(
        swapped.is_invalid() && swapped.to_string().contains(r#"is "eu-2" by its own table"#),
        "{swapped}"
    );
    let same = refusal(connect(&[(one, &first), (two, &first), ("eu-3", &third)]).await).await;
    assert!(same.is_invalid() && same.to_string().starts_with("eu-2: "), "{same}");
    let twice = refusal(connect(&[(one, &first), (one, &second)]).await).await;
    assert!(twice.is_invalid() && twice.to_string().contains("two databases are called"), "{twice}");
    for none in [&[][..], &[("eu-1/known", first.as_str())]] {
        let none = refusal(connect(none).await).await;
        assert!(none.is_invalid(), "{none}");
    }
    let migrator = || Migrator::new(&three.0[2].url).unwrap();
    let renamed = migrator().named("eu-4", &["eu-1", "eu-4"]).unwrap().apply().await.unwrap_err();
    assert!(renamed.is_invalid(), "{renamed}");
    // With one less, or one more that does not say that it is new, keys would begin anew in another database.
    set(&three.limiter().await, "login", 5).await;
    let nameless = Db::create(three.0[0].engine, "sharded::nameless").await;
    let fourth = nameless.url_as(Role::App);
    let all = [(one, first.as_str()), (two, &second), ("eu-3", &third)];
    for list in [all[..2].to_vec(), [&all[..], &[("eu-4", &fourth)]].concat()] {
        let other = refusal(connect(&list).await).await;
        let told = other.to_string();
        assert!(other.is_invalid() && told.contains("decides among eu-1 eu-2 eu-3 by its own"), "{other}");
        assert!(told.contains("NAME/known"), "{other}");
    }
    let changed = migrator().named("eu-3", &["eu-3", "eu-4"]).unwrap().apply().await.unwrap_err();
    assert!(changed.is_invalid(), "{changed}");
    match connect(&[&all[..], &[("eu-4/known", &fourth)]].concat()).await {
        // A file is this process's own.
        Ok(_) => assert_eq!(nameless.engine, Engine::Sqlite),
        Err(error) => {
            assert!(error.is_schema() && error.to_string().contains("tallygate migrate"), "{error}")
        }
    }
    // The order of the list says nothing, and alone it is as any other.
    connect(&[("eu-3", &third), (one, &first), (two, &second)]).await.unwrap();
    connected(&first).await;
}

/// Of a result that a database gave which is not the key's own.
fn belongs<T: std::fmt::Debug>(result: Result<T>, to: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains(&format!("the bucket belongs to {to}; ask there")), "{error}");
}

pub async fn a_key_begins_in_the_database_that_it_belongs_to_or_nowhere(db: Db) {
    let three = Three::beside(db).await;
    let limiter = three.limiter().await;
    let zone = set(&limiter, "login", 3).await;
    set(&limiter, "pay", 3).await;
    for (n, db) in three.0.iter().enumerate() {
        let home = NAMES[(n + 1) % 3];
        let alone = db.limiter().await;
        let [key, other]: [String; 2] = three.keys(&limiter, home, 2).await.try_into().unwrap();
        let own = three.keys(&limiter, NAMES[n], 3).await.remove(2);
        let check = || Check::new("login", &key);
        belongs(alone.check(check()).await, home);
        belongs(alone.reserve(check(), Duration::from_secs(60)).await, home);
        belongs(alone.check_many(vec![Check::new("login", &own), check()]).await, home);
        belongs(alone.check_all(vec![check(), Check::new("pay", &key)]).await, home);
        belongs(alone.check_velocity(zone.id, &key).await, home);
        let made = alone.rate_limiting_request(&own, 1, 10).await.unwrap_err();
        assert!(made.is_invalid() && made.to_string().contains("makes no zone alone"), "{made}");
        let operator = alone.operator();
        belongs(operator.ban("login", &key, Duration::from_secs(60), "", "test").await, home);
        let exempt = Override { limit: None, ban_exempt: true, for_us: None };
        belongs(operator.set_override("login", &key, exempt, "", "test").await, home);
        let mut session = db.connect_as(Role::App).await;
        session.begin().await;
        belongs(alone.check_in(session.joined(), check()).await, home);
        session.execute("rollback").await.unwrap();
        for statement in match db.engine {
            Engine::Sqlite => &[][..],
            Engine::Postgres => &[
                "select zone_check('login', 'KEY')",
                "select zone_check('login', 'KEY', null, 0)",
                "select * from check_velocity('login', 'KEY')",
            ],
            _ => &[
                "call zone_check('login', 'KEY', null, 1, false, 5)",
                "call zone_check('login', 'KEY', null, 0, false, 5)",
                "call check_velocity('login', 'KEY')",
            ],
        } {
            let told = session.execute(&statement.replace("KEY", &key)).await.unwrap_err();
            assert!(told.to_string().contains("the bucket belongs to"), "{statement}: {told}");
        }
        // Nobody closes what belongs here, nor what may belong here later.
        let call = if db.engine == Engine::Postgres { "select" } else { "call" };
        for key in [&own, &key] {
            if db.engine != Engine::Sqlite {
                session.execute(&format!("{call} zone_bucket_place('login', '{key}')")).await.unwrap();
            }
        }
        // The keys that belong here are decided as ever, and so are those that were moved here, also where upkeep removed the head.
        assert!(alone.check(Check::new("login", &own)).await.unwrap().is_allowed());
        limiter.check(Check::new("login", &other)).await.unwrap();
        three.owner_of(&NAMES).await.owner().move_to("login", &other, NAMES[n]).await.unwrap();
        assert_eq!(alone.check(Check::new("login", &other)).await.unwrap().seq, Some(2));
        db.execute(&format!("delete from zone_bucket_lock where bucket_key = '{other}'")).await;
        let now = if db.engine == Engine::Sqlite { "1" } else { "current_timestamp" };
        db.execute(&format!(
            "insert into zone_bucket_removed (zone_id, removed_at) values ({}, {now})",
            zone.id
        ))
        .await;
        let again = db.limiter().await;
        assert_eq!(again.check(Check::new("login", &other)).await.unwrap().seq, Some(3));
        belongs(again.check(check()).await, home);
        let here = format!("select count(*) from zone_bucket_lock where bucket_key = '{key}'");
        assert_eq!(db.number(&here).await, 0);
        assert_eq!(limiter.check(check()).await.unwrap().seq, Some(1));
    }
    assert_eq!(three.faults(&limiter).await, [""; 0]);
}

/// Processes of both lists ask at the same time: one database begins the bucket, and the other one says which.
pub async fn a_key_that_changes_its_database_begins_in_one_of_the_two(db: Db) {
    let three = Three::nameless(db).await;
    let (two, joining) = (&NAMES[1..], ["eu-1/joining", "eu-2", "eu-3"]);
    three.name(two).await;
    let old = three.limiter_of(two).await.unwrap();
    set(&old, "login", 5).await;
    three.name(&joining).await;
    three.owner_of(&joining).await.owner().bring_zones().await.unwrap();
    let joined = three.limiter_of(&joining).await.unwrap();
    for n in 0..30 {
        let check = || Check::new("login", format!("user:{n}"));
        let (first, second) = tokio::join!(old.check(check()), joined.check(check()));
        second.unwrap();
        match first {
            Ok(_) => {}
            Err(error) => assert!(error.to_string().contains("eu-1 is not in this list"), "{error}"),
        }
    }
    let left = "select count(*) from zone_bucket_lock where moved_to = 'eu-1'";
    let user = match three.0[1].engine {
        Engine::Sqlite => "moved_by is null".to_owned(),
        _ => format!("moved_by like '{}%'", user(Role::App)),
    };
    let by = format!("{left} and {user}");
    let mut marks = 0;
    for db in &three.0[1..] {
        assert_eq!(db.number(left).await, db.number(&by).await);
        marks += db.number(left).await;
    }
    assert!(marks > 0);
    let key = three.keys(&joined, "eu-1", 1).await.remove(0);
    joined.check(Check::new("login", &key)).await.unwrap();
    assert_eq!(three.faults(&joined).await, [""; 0]);
}

pub async fn a_bucket_that_is_open_twice_or_that_no_mark_leads_to_is_found(db: Db) {
    let three = Three::beside(db).await;
    let limiter = three.limiter().await;
    set(&limiter, "login", 5).await;
    let key = three.keys(&limiter, "eu-2", 1).await.remove(0);
    let found = async || {
        let mut found = Vec::new();
        let tell = |told| {
            if let Verifying::Fault(fault) = told {
                found.push((fault.what, fault.shard.unwrap(), fault.key, fault.detail));
            }
        };
        let verified = limiter.auditor().verify(&Verify::default(), tell).await.unwrap();
        assert_eq!(verified.faults, found.len() as u64);
        found
    };
    // As a database that was told another list would do it.
    three.0[0].execute("update tallygate_shard set among = 'eu-1'").await;
    three.0[0].limiter().await.check(Check::new("login", &key)).await.unwrap();
    three.0[0].execute("update tallygate_shard set among = 'eu-1 eu-2 eu-3'").await;
    let mut faults = found().await;
    let (what, shard, of, detail) = faults.pop().unwrap();
    assert!(faults.is_empty() && what == FaultKind::WrongPlace, "{faults:?}");
    assert!(
        (&*shard, of.as_ref()) == ("eu-1", Some(&key))
            && detail.starts_with("eu-2, to which its key belongs"),
        "{detail}"
    );
    assert_eq!(limiter.check(Check::new("login", &key)).await.unwrap().seq, Some(1));
    let (what, _, of, detail) = found().await.pop().unwrap();
    assert_eq!((what, of), (FaultKind::WrongPlace, Some(key)));
    assert!(detail.starts_with("eu-1 and eu-2 have it open"), "{detail}");
    let [forked, key] = three.keys(&limiter, "eu-1", 2).await.try_into().unwrap();
    for key in [&forked, &key] {
        limiter.check(Check::new("login", key)).await.unwrap();
        three.owner_of(&NAMES).await.owner().move_to("login", key, "eu-3").await.unwrap();
    }
    // The mark is taken away, and the head is again what it was before.
    let hash =
        format!("select row_hash from zone_txn where bucket_key = '{forked}' order by seq desc limit 1");
    let open = format!("moved_to = null, moved_by = null, row_hash = ({hash}) where bucket_key = '{forked}'");
    three.0[0].execute(&format!("update zone_bucket_lock set {open}")).await;
    let (what, _, of, detail) =
        found().await.into_iter().find(|(.., of, _)| *of == Some(forked.clone())).unwrap();
    assert!(
        what == FaultKind::WrongPlace && detail.starts_with("eu-1 and eu-3 have it open"),
        "{of:?}: {detail}"
    );
    for table in ["zone_txn", "zone_txn_dropped", "zone_bucket_lock"] {
        three.0[2].execute(&format!("delete from {table} where bucket_key = '{key}'")).await;
    }
    let faults = found().await;
    let (what, shard, of, detail) = faults.iter().find(|(.., of, _)| *of == Some(key.clone())).unwrap();
    assert_eq!((*what, &**shard, of.is_some()), (FaultKind::WrongPlace, "eu-1", true), "{detail}");
    assert_eq!(detail, "its 1 rows have moved to eu-3, which has nothing of it");
}

pub async fn limits_of_several_databases_are_refused_unless_that_is_chosen(db: Db) {
    let three = Three::beside(db).await;
    let limiter = three.limiter().await;
    set(&limiter, "login", 2).await;
    let mut keys = Vec::new();
    for name in NAMES {
        keys.extend(three.keys(&limiter, name, 1).await);
    }
    let checks = |keys: &[String]| keys.iter().map(|key| Check::new("login", key)).collect::<Vec<_>>();
    let refused = limiter.check_all(checks(&keys)).await.unwrap_err();
    assert!(refused.is_invalid() && refused.to_string().contains("eu-3"), "{refused}");
    assert_eq!(limiter.auditor().history(&History::default()).await.unwrap().rows, []);
    let one = limiter.check_all(vec![Check::new("login", &keys[0])]).await.unwrap();
    assert!(one.is_allowed());

    let spanning = three.limiter_with(Config { spanning: Spanning::InOrder, ..three.0[0].config() }).await;
    let both = spanning.check_all(checks(&keys[1..])).await.unwrap();
    assert!(both.is_allowed() && both.decisions.iter().all(|decision| decision.remaining == 1), "{both:?}");
    // The second one has room for no more.
    spanning.check(Check::new("login", &keys[1])).await.unwrap();
    let txn = Uuid::now_v7();
    let asked = || checks(&keys).into_iter().map(|check| check.txn(txn)).collect::<Vec<_>>();
    for _ in 0..2 {
        let blocked = spanning.check_all(asked()).await.unwrap();
        let told: Vec<_> =
            blocked.decisions.iter().map(|d| (d.key.clone(), d.reason, d.remaining, d.txn_id)).collect();
        let expected = [(Reason::HeldBack, 1), (Reason::OverLimit, 0), (Reason::HeldBack, 1)];
        let expected: Vec<_> =
            keys.iter().zip(expected).map(|(key, (reason, left))| (key.clone(), reason, left, txn)).collect();
        assert_eq!(told, expected);
        assert!(blocked.blocked && blocked.retry_after().is_some());
    }
    let left = async |key: &str| spanning.peek("login", key).await.unwrap().remaining;
    assert_eq!([left(&keys[0]).await, left(&keys[1]).await, left(&keys[2]).await], [1, 0, 1]);
    assert_eq!(three.faults(&spanning).await, [""; 0]);
}

pub async fn a_transaction_is_found_wherever_it_is(db: Db) {
    let three = Three::beside(db).await;
    let limiter = three.limiter().await;
    set(&limiter, "login", 5).await;
    let keys: Vec<String> = (0..9).map(|n| format!("user:{n}")).collect();
    let txns: Vec<Uuid> = keys.iter().map(|_| Uuid::now_v7()).collect();
    let checks = || {
        keys.iter()
            .zip(&txns)
            .map(|(key, txn)| Check::new("login", key).cost(2).txn(*txn))
            .collect::<Vec<_>>()
    };
    let first = limiter.check_many(checks()).await.unwrap();
    let again = limiter.check_many(checks()).await.unwrap();
    for ((key, first), again) in keys.iter().zip(&first).zip(&again) {
        assert_eq!((&first.key, first.remaining, first.replayed), (key, 3, false));
        assert_eq!((&again.key, again.seq, again.replayed), (key, first.seq, true));
    }
    for (key, txn) in keys.iter().zip(&txns) {
        let given = limiter.refund(*txn).await.unwrap();
        assert_eq!((given.len(), given[0].key.as_str(), given[0].remaining), (1, key.as_str(), 5));
        let named = limiter.refund(Charged::by(*txn).in_bucket("login", key)).await.unwrap();
        assert!(named[0].replayed);
        let explained = limiter.auditor().explain(*txn, 5).await.unwrap();
        assert_eq!(explained.rows.len(), 2);
        assert!(explained.rows.iter().all(|row| row.reproduced == Some(true)));
    }
    let unknown = limiter.refund(Uuid::now_v7()).await.unwrap_err();
    assert!(unknown.is_invalid() && unknown.to_string().contains("no transaction"), "{unknown}");
    let held =
        limiter.reserve(Check::new("login", "user:3").cost(5), Duration::from_secs(600)).await.unwrap();
    let settled = limiter.settle(held.txn_id, 1).await.unwrap();
    assert_eq!(settled[0].remaining, 4);
    assert_eq!(three.faults(&limiter).await, [""; 0]);
}

pub async fn what_is_read_is_read_of_all(db: Db) {
    let three = Three::beside(db).await;
    let limiter = three.limiter().await;
    set(&limiter, "login", 2).await;
    for round in 0..3 {
        let checks = (0..12).map(|n| Check::new("login", format!("user:{n}"))).collect();
        for decision in limiter.check_many(checks).await.unwrap() {
            assert_eq!(decision.blocked, round == 2);
        }
    }
    for n in 0..6 {
        let (key, over) = (format!("user:{n}"), Override { limit: None, ban_exempt: true, for_us: None });
        limiter.operator().ban("login", &key, Duration::from_secs(600), "why", "who").await.unwrap();
        limiter.operator().set_override("login", &key, over, "why", "who").await.unwrap();
    }
    let auditor = limiter.auditor();
    for (zone, oldest_first) in [(Some("login"), false), (Some("login"), true), (None, false)] {
        for limit in [1, 7, 100] {
            assert_eq!(paged(&limiter, zone, oldest_first, limit).await, 48, "{zone:?} {limit}");
        }
    }
    let of_key = History::default().zone("login").key("user:3");
    assert_eq!(auditor.history(&of_key).await.unwrap().rows.len(), 5);
    let report = auditor.report(&ReportOn::default(), |_| ()).await.unwrap();
    let counts = report.zones[0].counts;
    assert_eq!((report.zones.len(), report.rows, counts.allowed, counts.blocked), (1, 48, 24, 12));
    assert_eq!((report.blocked_most.buckets.len(), report.actions.newest.len()), (12, 12));
    assert_eq!(limiter.operator().overrides("login").await.unwrap().len(), 6);
    assert_eq!(auditor.bans("login").await.unwrap().len(), 6);
    assert_eq!(auditor.buckets("login", None, 100).await.unwrap().len(), 12);
    assert_eq!(auditor.buckets("login", Some("user:3"), 2).await.unwrap()[1].key, "user:5");
    assert_eq!(auditor.bucket("login", "user:7").await.unwrap().unwrap().remaining, 0);
    assert_eq!(auditor.find("user:7").await.unwrap().len(), 1);
    // A row that was changed is found, and said where.
    let tampered = three.keys(&limiter, "eu-3", 1).await.remove(0);
    assert_eq!(three.faults(&limiter).await, [""; 0]);
    three.0[2]
        .execute(&format!("update zone_txn set cost = 7 where seq = 1 and bucket_key = '{tampered}'"))
        .await;
    let mut found = BTreeSet::new();
    let tell = |told| {
        if let Verifying::Fault(fault) = told {
            found.insert((fault.shard, fault.what == FaultKind::Edited));
        }
    };
    let verified = auditor.verify(&Verify::default(), tell).await.unwrap();
    assert_eq!((verified.rows, verified.buckets, verified.zones), (48, 12, 1));
    assert!(
        found.contains(&(Some("eu-3".to_owned()), true))
            && found.iter().all(|(shard, _)| shard.as_deref() == Some("eu-3"))
    );
}

/// The number of rows that a history has, page by page: none twice, and in their order.
async fn paged(limiter: &Limiter, zone: Option<&str>, oldest_first: bool, limit: u32) -> usize {
    let mut history = History { limit, oldest_first, zone: zone.map(str::to_owned), ..History::default() };
    let mut rows = Vec::new();
    loop {
        let page = limiter.auditor().history(&history).await.unwrap();
        rows.extend(page.rows);
        history.before = page.next;
        if history.before.is_none() {
            break;
        }
    }
    let distinct: BTreeSet<_> = rows.iter().map(|row| (row.key.clone(), row.seq)).collect();
    assert_eq!(rows.len(), distinct.len(), "{zone:?} {limit}");
    let times: Vec<_> = rows.iter().map(|row| row.decided_at).collect();
    assert!(if oldest_first { times.is_sorted() } else { times.iter().rev().is_sorted() });
    rows.len()
}

pub async fn owners_look_after_all_and_erase_in_one(db: Db) {
    let three = Three::beside(db).await;
    let owner = Limiter::sharded(three.urls(Role::Owner), three.0[0].config()).await.unwrap();
    set(&owner, "login", 2).await;
    set(&owner, "unused", 2).await;
    owner.check(Check::new("login", "user:42")).await.unwrap();
    owner.owner().maintain(Upkeep::default()).await.unwrap();
    assert!(owner.auditor().maintenance().await.unwrap().finished_at.is_some());
    let erased = owner.owner().erase("login", "user:42", "asked for", "privacy").await.unwrap();
    assert_eq!(erased.rows, 1);
    owner.owner().remove_zone("unused").await.unwrap();
    let used = owner.owner().remove_zone("login").await.unwrap_err();
    assert!(used.is_invalid(), "{used}");
    assert!(owner.owner().remove_zone("unused").await.unwrap_err().is_unknown_zone());
    // It was used in one of them only, and is there in all.
    assert_eq!(three.faults(&owner).await, [""; 0]);
}

pub async fn a_caller_joins_the_database_of_the_key(db: Db) {
    let three = Three::beside(db).await;
    let limiter = three.limiter().await;
    set(&limiter, "login", 2).await;
    let key = three.keys(&limiter, "eu-1", 1).await.remove(0);
    let (name, one) = limiter.shard_of("login", &key).await.unwrap();
    assert_eq!(name, "eu-1");
    let first = &three.0[0];
    macro_rules! join {
        ($pool:ty, $begin:expr) => {{
            let pool = <$pool>::connect(&first.url_as(Role::App)).await.unwrap();
            let mut tx = pool.begin_with($begin).await.unwrap();
            let refused = limiter.check_in(&mut *tx, Check::new("login", &key)).await.unwrap_err();
            assert!(refused.is_invalid() && refused.to_string().contains("shard_of"), "{refused}");
            assert!(one.check_in(&mut *tx, Check::new("login", &key)).await.unwrap().is_allowed());
            tx.commit().await.unwrap();
        }};
    }
    match first.engine {
        Engine::Sqlite => join!(sqlx::SqlitePool, "begin immediate"),
        _ => join!(sqlx::PgPool, "begin"),
    }
    assert_eq!(limiter.peek("login", &key).await.unwrap().remaining, 1);
}

pub async fn a_database_that_is_down_stops_its_own_buckets_only(db: Db) {
    let three = Three::beside(db).await;
    let proxy = Proxy::before(&three.0[0].url_as(Role::App)).await;
    let mut urls = three.urls(Role::App);
    urls[0].1 = proxy.url.clone();
    let address = proxy.address();
    // Long enough for the others, which share the machine with all other tests, to answer within it.
    let config = Config { deadline: Duration::from_secs(8), ..Config::default() };
    set(&three.limiter().await, "login", 100).await;
    let limiter = Limiter::sharded(urls, config).await.unwrap();
    let mut keys = Vec::new();
    for name in NAMES {
        keys.push(three.keys(&limiter, name, 8).await);
    }
    let all = || keys.iter().flatten().map(|key| Check::new("login", key));
    let txns: Vec<Uuid> = join_all(all().map(|check| limiter.check(check)))
        .await
        .into_iter()
        .map(|decision| decision.unwrap().txn_id)
        .collect();
    proxy.end().await;
    for _ in 0..2 {
        for (decision, check) in
            join_all(all().map(|check| limiter.check(check))).await.into_iter().zip(all())
        {
            match decision {
                Ok(decision) => {
                    assert!(decision.is_allowed() && !keys[0].iter().any(|key| key == check.key()))
                }
                Err(error) => {
                    assert!(error.is_transient() && error.to_string().starts_with("eu-1: "), "{error}");
                    assert!(keys[0].iter().any(|key| key == check.key()));
                }
            }
        }
    }
    limiter.ping().await.unwrap();
    assert!(limiter.check_many(all().collect()).await.unwrap_err().is_transient());
    let others = keys[1..].iter().flatten().map(|key| Check::new("login", key)).collect();
    assert_eq!(limiter.check_many(others).await.unwrap().len(), 16);
    // Where it is found, it is given back; where it may be in the silent one, that is told.
    assert_eq!(limiter.refund(txns[8]).await.unwrap().len(), 1);
    let error = limiter.refund(txns[0]).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("eu-1"), "{error}");
    // Where a zone is open in an outage, what the silent one was asked passes, and is known to its ledger afterwards.
    let open = log(100, 3600).with_on_outage(OnOutage::Open);
    three.limiter().await.operator().set_zone("search", &open, None, "test").await.unwrap();
    let proxy = Proxy::at(&address, &three.0[0].url_as(Role::App)).await;
    let folder = tempfile::tempdir().unwrap();
    let limiter = limiter.with_journal(Journal::open(folder.path().join("journal"), 1_000).unwrap());
    limiter.check(Check::new("search", &keys[0][0])).await.unwrap();
    proxy.end().await;
    let ask = async |key: &str| limiter.check(Check::new("search", key)).await.unwrap().reason;
    let reasons = [ask(&keys[0][0]).await, ask(&keys[1][0]).await];
    assert_eq!(reasons, [Reason::Unchecked, Reason::WithinLimit]);
    let _proxy = Proxy::at(&address, &three.0[0].url_as(Role::App)).await;
    limiter.peek("search", &keys[0][0]).await.unwrap();
    limiter.reconcile().await.unwrap();
    // As one that passed, or as it was decided, where that was still under way when the database came back.
    let searched =
        "select count(*) from zone_txn t join zone_master z on z.id = t.zone_id where z.name = 'search'";
    assert_eq!(three.0[0].number(searched).await, 2);
    assert_eq!(three.0[1].number("select count(*) from zone_txn where kind = 'unchecked'").await, 0);
}

/// Asks about keys, each once and in an order of its own, and tells which passed.
fn asking(limiter: &Limiter, keys: &[String], seed: u64) -> impl Future<Output = Vec<String>> + use<> {
    let (limiter, mut keys) = (limiter.clone(), keys.to_vec());
    fastrand::Rng::with_seed(seed).shuffle(&mut keys);
    let asked = async move {
        let mut passed = Vec::new();
        for key in keys {
            let decision = limiter.check(Check::new("login", &key)).await.unwrap();
            passed.extend(decision.is_allowed().then_some(key));
        }
        passed
    };
    async { tokio::spawn(asked).await.unwrap() }
}

/// The number of times that each key passed.
fn passed(answers: Vec<Vec<String>>, all: &mut BTreeMap<String, usize>) {
    answers.into_iter().flatten().for_each(|key| *all.entry(key).or_default() += 1);
}

pub async fn a_database_is_added_while_checks_go_on(db: Db) {
    let three = Three::nameless(db).await;
    let (two, known) = (&NAMES[1..], ["eu-1/known", "eu-2", "eu-3"]);
    let joining = ["eu-1/joining", "eu-2", "eu-3"];
    three.name(two).await;
    let old = three.limiter_of(two).await.unwrap();
    set(&old, "login", 5).await;
    three.name(&known).await;
    let keys: Vec<String> = (0..90).map(|n| format!("user:{n}")).collect();
    let mut all = BTreeMap::new();
    // Processes that have the old list, and such as know of the new one.
    let knowing = three.limiter_of(&known).await.unwrap();
    passed(join_all([asking(&old, &keys[..30], 1), asking(&knowing, &keys[..45], 2)]).await, &mut all);
    let refused = three.owner_of(&known).await.owner().rebalance(1, |_| ()).await.unwrap_err();
    assert!(refused.is_invalid() && refused.to_string().contains("eu-1/joining"), "{refused}");
    match three.limiter_of(&joining).await {
        // A file is told by each process that opens it.
        Ok(_) => assert_eq!(three.0[0].engine, Engine::Sqlite),
        Err(untold) => {
            assert!(untold.is_schema() && untold.to_string().contains("tallygate migrate"), "{untold}")
        }
    }
    three.name(&joining).await;
    // A database that lacks the zones gets no bucket.
    let owner = three.owner_of(&joining).await;
    let joined = three.limiter_of(&joining).await.unwrap();
    passed(vec![asking(&joined, &keys[70..80], 14).await], &mut all);
    set(&knowing, "login", 5).await;
    let early = refusal(three.limiter_of(&NAMES).await).await;
    assert!(early.is_invalid() && early.to_string().contains("decides among eu-2 eu-3"), "{early}");
    // Those that know, and those for which it joins: what is new goes there, what was decided stays until it is moved.
    let answers = [asking(&knowing, &keys[..60], 3), asking(&joined, &keys, 4), asking(&joined, &keys, 5)];
    passed(join_all(answers).await, &mut all);
    let new = three.0[0].number("select count(*) from zone_bucket_lock where seq > 0").await;
    let told = join_all(keys.iter().map(|key| old.peek("login", key))).await;
    let lost: Vec<_> = told.into_iter().filter_map(Result::err).collect();
    assert!(lost.iter().all(|error| error.to_string().contains("eu-1 is not in this list")), "{lost:?}");
    assert!(new > 0 && lost.len() as i64 == new, "{new} {lost:?}");
    // All of them join, and it is given its keys.
    let moving = async {
        let mut told = Vec::new();
        let done = owner.owner().rebalance(4, |done| told.push(done.moved)).await.unwrap();
        assert!(told.is_sorted() && told.last() == Some(&done.moved));
        done
    };
    let checks = join_all((6..12).map(|seed| asking(&joined, &keys, seed)));
    let (done, answers) = tokio::join!(moving, checks);
    passed(answers, &mut all);
    assert_eq!(done.among, NAMES);
    // Those whose list says so still, and those whose list is settled.
    let settled = three.limiter().await;
    passed(join_all([asking(&settled, &keys, 12), asking(&joined, &keys, 13)]).await, &mut all);
    assert!(all.len() == keys.len() && all.values().all(|&passed| passed == 5), "{all:?}");
    let there = three.keys(&settled, "eu-1", 90).await;
    let there = keys.iter().filter(|key| there.contains(key)).count();
    assert!((20..=40).contains(&there), "a third of 90 keys is not {there}");
    let open = "select count(*) from zone_bucket_lock where seq > 0 and moved_to is null";
    assert_eq!(three.0[0].number(open).await, there as i64);
    assert!(
        done.moved > 0 && done.moved + u64::try_from(new).unwrap() <= there as u64,
        "{done:?} {new} {there}"
    );
    assert_eq!(three.faults(&settled).await, [""; 0]);
    let again = three.owner_of(&NAMES).await.owner().rebalance(2, |_| ()).await.unwrap();
    assert_eq!((again.moved, again.rows), (0, 0));
    for late in [two, &known] {
        let late = refusal(three.limiter_of(late).await).await;
        assert!(late.is_invalid() && late.to_string().contains("decides among eu-1 eu-2 eu-3"), "{late}");
    }
}

pub async fn moving_all_that_was_cut_off_goes_on(db: Db) {
    let three = Three::nameless(db).await;
    let (two, joining) = (&NAMES[1..], ["eu-1/joining", "eu-2", "eu-3"]);
    three.name(two).await;
    let old = three.limiter_of(two).await.unwrap();
    set(&old, "login", 3).await;
    let keys: Vec<String> = (0..60).map(|n| format!("user:{n}")).collect();
    let mut all = BTreeMap::new();
    passed(join_all([asking(&old, &keys, 1), asking(&old, &keys, 2)]).await, &mut all);
    three.name(&joining).await;
    let owner = three.owner_of(&joining).await;
    owner.owner().bring_zones().await.unwrap();
    let mut moved = Vec::new();
    for cut in 1..=6 {
        // It is cut off in the midst of several buckets, and of whatever there is to do for each.
        let (owner, (cutting, cut_off)) = (owner.owner(), tokio::sync::oneshot::channel::<()>());
        let mut cutting = Some(cutting);
        let work = tokio::spawn(async move {
            let cut = |done: &Rebalanced| {
                if done.moved == cut % 4 {
                    drop(cutting.take());
                }
            };
            owner.rebalance(3, cut).await.map(|done| done.moved)
        });
        cut_off.await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(7 * cut)).await;
        work.abort();
        moved.extend(work.await.ok());
    }
    let rest = owner.owner().rebalance(3, |_| ()).await.unwrap();
    let settled = three.limiter().await;
    passed(join_all([asking(&settled, &keys, 3), asking(&settled, &keys, 4)]).await, &mut all);
    assert!(all.len() == keys.len() && all.values().all(|&passed| passed == 3), "{all:?}");
    let open = "select count(*) from zone_bucket_lock where seq > 0 and moved_to is null";
    assert_eq!(three.0[0].number(open).await, three.of(&settled, &keys, "eu-1").await, "{moved:?} {rest:?}");
    assert_eq!(three.faults(&settled).await, [""; 0]);
}

pub async fn a_database_is_taken_out_while_checks_go_on(db: Db) {
    let three = Three::beside(db).await;
    let settled = three.limiter().await;
    set(&settled, "login", 5).await;
    let keys: Vec<String> = (0..60).map(|n| format!("user:{n}")).collect();
    let mut all = BTreeMap::new();
    passed(vec![asking(&settled, &keys[..30], 1).await], &mut all);
    let list = ["eu-1", "eu-2", "eu-3/leaving"];
    three.name(&list).await;
    let leaving = three.limiter_of(&list).await.unwrap();
    passed(join_all([asking(&settled, &keys[..45], 2), asking(&leaving, &keys, 3)]).await, &mut all);
    let owner = three.owner_of(&list).await;
    let owner = owner.owner();
    let checks = join_all((4..8).map(|seed| asking(&leaving, &keys, seed)));
    let (done, answers) = tokio::join!(owner.rebalance(3, |_| ()), checks);
    passed(answers, &mut all);
    let two = three.limiter_of(&NAMES[..2]).await.unwrap();
    passed(vec![asking(&two, &keys, 8).await], &mut all);
    assert!(all.len() == keys.len() && all.values().all(|&passed| passed == 5), "{all:?}");
    assert_eq!(done.unwrap().among, NAMES[..2]);
    let open = "select count(*) from zone_bucket_lock where seq > 0 and moved_to is null";
    assert_eq!(three.0[2].number(open).await, 0);
    assert_eq!(three.faults(&two).await, [""; 0]);
    assert_eq!(three.faults(&leaving).await, [""; 0]);
}

pub async fn a_bucket_that_was_moved_is_followed(db: Db) {
    let three = Three::beside(db).await;
    let limiter = three.limiter_with(Config { spanning: Spanning::InOrder, ..three.0[0].config() }).await;
    set(&limiter, "login", 9).await;
    let key = three.keys(&limiter, "eu-1", 1).await.remove(0);
    let other = three.keys(&limiter, "eu-2", 1).await.remove(0);
    let check = || Check::new("login", &key);
    let first = limiter.check(check()).await.unwrap();
    limiter.check(check().cost(20)).await.unwrap();
    let exempt = Override { limit: None, ban_exempt: true, for_us: None };
    limiter.operator().set_override("login", &key, exempt, "", "test").await.unwrap();
    let owner = three.owner_of(&NAMES).await;
    let moved = owner.owner().move_to("login", &key, "eu-3").await.unwrap();
    assert_eq!((moved.from.as_str(), moved.to.as_str(), moved.rows), ("eu-1", "eu-3", 3));
    let again = owner.owner().move_to("login", &key, "eu-3").await.unwrap();
    assert_eq!((again.from.as_str(), again.rows), ("eu-3", 0));
    let nobody = owner.owner().move_to("login", "nobody", "eu-3").await.unwrap_err();
    assert!(nobody.is_invalid() && nobody.to_string().contains("no bucket"), "{nobody}");
    let nowhere = owner.owner().move_to("login", &key, "eu-4").await.unwrap_err();
    assert!(nowhere.is_invalid() && nowhere.to_string().contains("eu-1, eu-2, eu-3"), "{nowhere}");

    // Every question about it is answered there.
    let replayed = limiter.check(check().txn(first.txn_id)).await.unwrap();
    assert!(replayed.replayed && replayed.seq == first.seq);
    let beside = vec![check(), Check::new("login", &other), check()];
    let left: Vec<_> = limiter.check_many(beside).await.unwrap().iter().map(|each| each.remaining).collect();
    assert_eq!(left, [7, 8, 6]);
    let both = limiter.check_all(vec![check(), Check::new("login", &other)]).await.unwrap();
    assert!(both.is_allowed() && both.decisions[0].remaining == 5, "{both:?}");
    assert_eq!(limiter.refund(both.decisions[0].txn_id).await.unwrap().len(), 2);
    let given = limiter.refund(first.txn_id).await.unwrap();
    assert_eq!((given.len(), given[0].remaining, given[0].replayed), (1, 7, false));
    let held = limiter.reserve(check().cost(3), Duration::from_secs(600)).await.unwrap();
    let charged = Charged::by(held.txn_id).in_bucket("login", &key);
    assert_eq!(limiter.settle(charged, 1).await.unwrap()[0].remaining, 6);
    limiter.operator().ban("login", &key, Duration::from_secs(60), "", "test").await.unwrap();
    let zone_id = limiter.operator().zone("login").await.unwrap().unwrap().id;
    assert!(limiter.check_velocity(zone_id, &key).await.unwrap().blocked);

    // And read once, though its first rows are in two databases.
    let auditor = limiter.auditor();
    let rows = |rows: Vec<tallygate::ledger::Entry>| rows.iter().rev().map(|row| row.seq).collect::<Vec<_>>();
    let of_key = auditor.history(&History::default().zone("login").key(&key)).await.unwrap();
    let count = of_key.rows.len();
    assert!(rows(of_key.rows).into_iter().eq(1..=count as i64));
    let of_txn = auditor.history(&History { txn: Some(first.txn_id), ..History::default() }).await.unwrap();
    assert_eq!(rows(of_txn.rows).len(), 2);
    let anywhere = auditor.history(&History::default().key(&key)).await.unwrap();
    assert!(rows(anywhere.rows).into_iter().eq(1..=count as i64));
    assert_eq!(auditor.explain(first.txn_id, 5).await.unwrap().rows.len(), 2);
    for zone in [Some("login"), None] {
        let block = auditor.last_block(zone, &key).await.unwrap().unwrap();
        assert_eq!(block.seq, count as i64, "the check under the ban");
        let first = auditor.last_decision(zone, &key, first.decided_at).await.unwrap().unwrap();
        assert_eq!(first.seq, 1);
    }
    let of_zone = auditor.history(&History::default().zone("login")).await.unwrap();
    let report = auditor.report(&ReportOn::default(), |_| ()).await.unwrap();
    // The other key was checked twice and given back once.
    assert_eq!((of_zone.rows.len(), report.rows), (count + 3, count as u64 + 3));
    for (oldest_first, limit) in [(false, 1), (true, 1), (false, 3), (true, 4)] {
        assert_eq!(paged(&limiter, Some("login"), oldest_first, limit).await, count + 3);
    }
    assert_eq!(auditor.buckets("login", None, 10).await.unwrap().len(), 2);
    assert_eq!(auditor.bans("login").await.unwrap().len(), 1);
    assert_eq!(auditor.find(&key).await.unwrap().len(), 1);
    assert_eq!(auditor.bucket("login", &key).await.unwrap().unwrap().limit, 9);
    assert_eq!(limiter.operator().overrides("login").await.unwrap().len(), 1);
    assert_eq!(three.faults(&limiter).await, [""; 0]);
    let one = Verify { zone: Some("login".to_owned()), key: Some(key.clone()), ..Verify::default() };
    assert_eq!(auditor.verify(&one, |_| ()).await.unwrap().rows, count as u64);

    // An erased key is erased in both.
    let erased = owner.owner().erase("login", &key, "asked for", "privacy").await.unwrap();
    assert_eq!(erased.rows, count as u64);
    for db in &three.0 {
        let named = format!("select count(*) from zone_txn where bucket_key = '{key}'");
        assert_eq!(db.number(&named).await, 0);
    }
    assert!(limiter.check(check().cost(9)).await.unwrap().is_allowed());
    assert_eq!(three.faults(&limiter).await, [""; 0]);
}
