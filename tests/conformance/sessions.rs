//! What a session has set, has left behind or has made beforehand reaches no decision, on MySQL and MariaDB.

use tallygate::Check;
use tallygate::audit::verify::Verify;
use tallygate::schema::Role;

use crate::db::{Connected, Db, Engine, log};
use crate::verify::verify;

/// The arguments of a batch: a check that is decided together with others, and one that is decided by itself.
const BATCH: &str = r#"'[{"zone_id":1,"key":"key","cost":1},{"zone_id":2,"key":"key","cost":1}]', 5"#;

/// A call of each routine that decides, and whether it joins a transaction.
fn calls() -> [(String, bool); 8] {
    let one = "1, 'key', null, 1, false, 5, null, false, null, null";
    [
        ("call check_velocity(1, 'key')".to_owned(), false),
        ("call rate_limiting_request('key', 10, 10)".to_owned(), false),
        (format!("call zone_check_own({one})"), false),
        (format!("call zone_check({one})"), true),
        (format!("call zone_check_many_own({BATCH}, false)"), false),
        (format!("call zone_check_all_own({BATCH})"), false),
        (format!("call zone_check_many({BATCH}, false)"), true),
        (format!("call zone_check_all({BATCH})"), true),
    ]
}

async fn call(session: &mut Connected, (sql, joins): &(String, bool)) -> Result<(), sqlx::Error> {
    if *joins {
        session.begin().await;
    }
    let called = session.execute(sql).await;
    if *joins {
        session.execute("commit").await.unwrap();
    }
    called
}

/// The zones of [`calls`]: a plain one, and one whose checks are decided one by one.
async fn set_zones(db: &Db) {
    let limiter = db.limiter().await;
    limiter.operator().set_zone("plain", &log(1000, 3600), None, "test").await.unwrap();
    limiter
        .operator()
        .set_zone("soft", &log(1000, 3600).with_soft_rate(Some(900)), None, "test")
        .await
        .unwrap();
}

/// The largest number in one row, and no row of anybody could be numbered after it.
pub async fn a_number_that_the_session_sets_is_no_rows(db: Db) {
    set_zones(&db).await;
    for number in ["1", "0", "9223372036854775807"] {
        for sql in &calls() {
            let mut app = db.connect_as(Role::App).await;
            app.execute(&format!("set insert_id = {number}")).await.unwrap();
            match call(&mut app, sql).await {
                Ok(()) => assert!(number == "0" && db.engine == Engine::MariaDb, "{}", sql.0),
                Err(error) => assert!(error.to_string().contains("insert_id to "), "{}: {error}", sql.0),
            }
        }
        // Refused for MySQL's application; where it may, numbers are left out and that is all.
        let mut app = db.connect_as(Role::App).await;
        app.execute("set auto_increment_increment = 1000, auto_increment_offset = 7").await.ok();
        for sql in &calls() {
            call(&mut app, sql).await.unwrap_or_else(|error| panic!("{}: {error}", sql.0));
        }
    }
    assert_eq!(db.number("select count(*) from zone_txn_view where id not between 1 and 1000000").await, 0);
    assert_eq!(db.number("select count(*) from zone_master where id not between 1 and 100000").await, 0);
    let limiter = db.limiter().await;
    assert!(limiter.check(Check::new("plain", "another")).await.unwrap().is_allowed());
    let (_, faults) = verify(&limiter, &Verify::default()).await;
    assert!(faults.is_empty(), "{faults:?}");
}

/// Those that made calls fail, or left the session in a transaction or ended it.
pub async fn settings_of_the_session_fail_no_call(db: Db) {
    set_zones(&db).await;
    let more: &[&str] =
        if db.engine == Engine::MariaDb { &["sql_if_exists = 1", "max_error_count = 0"] } else { &[] };
    let settings = ["sql_safe_updates = 1", "completion_type = 1", "completion_type = 2"];
    for setting in settings.iter().chain(more) {
        let mut app = db.connect_as(Role::App).await;
        app.execute(&format!("set {setting}")).await.unwrap();
        // A caller's own `commit` would do what the setting says.
        for sql in calls().iter().filter(|(_, joins)| !joins) {
            for _ in 0..2 {
                call(&mut app, sql).await.unwrap_or_else(|error| panic!("{setting}: {}: {error}", sql.0));
            }
        }
        let (name, value) = setting.split_once(" = ").unwrap();
        let is = app.texts(&format!("select cast(@@{name} + 0 as char)")).await;
        let words = app.texts(&format!("select cast(@@{name} as char)")).await;
        let named = ["NO_CHAIN", "CHAIN", "RELEASE"][value.parse::<usize>().unwrap()];
        assert!(is[0] == *value || words[0] == named, "{setting} is {is:?}, {words:?}");
    }
    db.assert_ledger_is_whole().await;
}
