//! Checkpoints, proofs and exports as files.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::program::Program;

/// An edit of a file, and the words with which it is refused.
type Edit<'e> = (&'e dyn Fn(&mut Value), &'e str);

/// Three checks of one key and one of another, a key, and a signed checkpoint.
struct Signed {
    program: Program,
    public_key: String,
    txn: String,
}

impl Signed {
    fn new() -> Self {
        let program = Program::with_login();
        let check = |key: &str| {
            let ran = program.run(&["check", "login", key, "--format", "json"]);
            ran.json()["txn_id"].as_str().unwrap().to_owned()
        };
        check("alice@example.org");
        let txn = check("alice@example.org");
        check("alice@example.org");
        check("bob");
        let public_key = program.ok(&["audit", "key", "audit.key"]).trim().to_owned();
        let signed = Self { program, public_key, txn };
        signed.checkpoint("monday.json", &["--key", "audit.key", "--heads", "monday.heads"]);
        signed
    }

    fn checkpoint(&self, file: &str, more: &[&str]) -> Value {
        let text = self.program.ok(&[&["audit", "checkpoint", "--margin", "0s"], more].concat());
        self.write(file, &text);
        serde_json::from_str(&text).unwrap()
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.program.path(file)).unwrap()
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.program.path(file), text).unwrap();
    }

    fn assert_refused(&self, arguments: &[&str], because: &str) {
        self.program.run(arguments).assert_refused(because);
    }
}

#[test]
fn a_checkpoint_is_small_names_nobody_and_is_found_unaltered() {
    let signed = Signed::new();
    let text = signed.read("monday.json");
    assert!(text.len() < 1_500 && !text.contains("alice"), "{text}");
    let heads = fs::read(signed.program.path("monday.heads")).unwrap();
    assert_eq!(heads.len(), 2 * 76);
    signed.program.run(&["check", "login", "bob"]);
    let check = ["audit", "checkpoint", "--check", "monday.json", "--public-key", &signed.public_key];
    assert!(signed.program.ok(&check).starts_with("unaltered: the 4 rows of 2 buckets up to "));
    let ran = signed.program.run(&[&check[..], &["--format", "json", "--heads", "monday.heads"]].concat());
    let json = ran.json();
    assert_eq!(
        (ran.code, &json["unaltered"], &json["differences"]),
        (0, &true.into(), &Value::Array(vec![]))
    );
    // The default margin leaves the last minutes out.
    let young: Value = serde_json::from_str(&signed.program.ok(&["audit", "checkpoint"])).unwrap();
    assert_eq!((&young["rows"], &young["zones"]), (&0.into(), &Value::Array(vec![])));
}

#[test]
fn another_ledger_is_not_taken_for_the_one_of_the_checkpoint() {
    let signed = Signed::new();
    // The checkpoint was made of another ledger than this one, which has nothing from before.
    let other = Program::with_login();
    for file in ["monday.json", "monday.heads"] {
        fs::copy(signed.program.path(file), other.path(file)).unwrap();
    }
    other.run(&["check", "login", "bob"]);
    let ran = other.run(&["audit", "checkpoint", "--check", "monday.json", "--heads", "monday.heads"]);
    assert_eq!(ran.code, 5, "{}", ran.err);
    assert!(ran.out.starts_with("ENDS EARLIER: "), "{}", ran.out);
    let check = ["audit", "checkpoint", "--check", "monday.json", "--format", "json"];
    assert_eq!(other.run(&check).json()["unaltered"], false);
}

#[test]
fn a_ledger_that_ends_earlier_is_told_apart_and_not_bucket_by_bucket_without_end() {
    let program = Program::with_login();
    let check = |name: &str, many: u32| {
        let lines = (0..many).map(|n| format!("{{\"zone\":\"login\",\"key\":\"{name} {n}\"}}\n"));
        assert_eq!(program.feed(&["check", "--stdin"], lines.collect::<String>()).code, 0);
    };
    check("old", 30);
    // The last rows may be in the second file only.
    let files = ["tallygate.db", "tallygate.db-wal"].map(|name| program.path(name));
    let backup = files.clone().map(|file| fs::read(file).unwrap_or_default());
    check("new", 1_010);
    check("old", 30);
    let made = program.ok(&["audit", "checkpoint", "--margin", "0s", "--heads", "monday.heads"]);
    fs::write(program.path("monday.json"), made).unwrap();
    let _ = fs::remove_file(program.path("tallygate.db-shm"));
    for (file, bytes) in files.iter().zip(backup) {
        fs::write(file, bytes).unwrap();
    }
    let compare = ["audit", "checkpoint", "--check", "monday.json", "--heads", "monday.heads"];
    let told = program.run(&compare);
    assert!(told.code == 5 && told.out.starts_with("ENDS EARLIER: "), "{told:?}");
    assert_eq!(told.out.lines().filter(|line| line.contains("bucket")).count(), 1 + 20 + 1, "{told:?}");
    assert!(told.out.ends_with("  and 1020 more buckets\n"), "{told:?}");
    let json = program.run(&[&compare[..], &["--format", "json"]].concat()).json();
    assert_eq!((&json["ends_earlier"], &json["unnamed"]), (&true.into(), &41.into()));
    assert_eq!(json["differences"].as_array().unwrap().len(), 1_000);
    program.ok(&["check", "login", "other"]);
}

#[cfg(unix)]
#[test]
fn a_signing_key_is_its_owners_and_is_never_printed() {
    use std::os::unix::fs::PermissionsExt;
    let signed = Signed::new();
    let path = signed.program.path("audit.key");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = signed.read("audit.key");
    let secret = secret.trim().rsplit(' ').next().unwrap();
    assert_eq!((secret.len(), signed.public_key.len()), (64, 64));
    assert!(secret != signed.public_key && !signed.read("monday.json").contains(secret));
    // The key stays when it is asked for again.
    assert_eq!(signed.program.ok(&["audit", "key", "audit.key"]).trim(), signed.public_key);
    assert_ne!(signed.program.ok(&["audit", "key", "other.key"]).trim(), signed.public_key);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    signed.assert_refused(&["audit", "checkpoint", "--key", "audit.key"], "chmod 600");
    signed.assert_refused(&["audit", "checkpoint", "--key", "monday.json"], "can be read by others");
}

/// A database and what is written beside it are its owner's, and nothing is written through a link.
#[test]
fn files_are_their_owners_and_no_link_is_followed() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let signed = Signed::new();
    let mode = |name: &str| fs::metadata(signed.program.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("tallygate.db"), 0o600);
    signed.write("theirs", "as it was");
    symlink(signed.program.path("theirs"), signed.program.path("now.heads")).unwrap();
    signed.program.ok(&["audit", "checkpoint", "--heads", "now.heads", "--margin", "0s"]);
    assert_eq!((signed.read("theirs").as_str(), mode("now.heads")), ("as it was", 0o600));
    signed.assert_refused(&["audit", "checkpoint", "--heads", "/dev/null"], "is no file");
}

#[test]
fn a_checkpoint_that_was_changed_or_is_anothers_is_refused() {
    let signed = Signed::new();
    let good: Value = serde_json::from_str(&signed.read("monday.json")).unwrap();
    let unsigned = signed.checkpoint("unsigned.json", &[]);
    signed.program.ok(&["audit", "key", "mallory.key"]);
    let mallory = signed.checkpoint("mallory.json", &["--key", "mallory.key"]);
    let edits: [Edit<'_>; 9] = [
        (&|c| c["zones"][0]["rows"] = 3.into(), "zones are not those of its root"),
        (&|c| c["rows"] = 3.into(), "zones are not those of its root"),
        (&|c| c["zones"][0]["zone"] = "logout".into(), "zones are not those of its root"),
        (&|c| c["cut_at"] = c["zones"][0]["zone"].take(), "is no checkpoint"),
        (&|c| c["made_at"] = "2099-01-01T00:00:00Z".into(), "times or root are not those of its digest"),
        (&|c| c["signature"] = mallory["signature"].clone(), "signature is not that of its public key"),
        (&|c| drop(c.as_object_mut().unwrap().remove("signature")), "signature or its public key is missing"),
        (&|c| c["format"] = 2.into(), "has format 2"),
        (&|c| c["more"] = 1.into(), "is no checkpoint"),
    ];
    for (edit, says) in edits {
        let mut edited = good.clone();
        edit(&mut edited);
        signed.write("edited.json", &edited.to_string());
        // One that is none is a fault of the call; one that was changed proves nothing.
        let code = if says.contains("is no checkpoint") || says.contains("format") { 2 } else { 6 };
        let check = ["audit", "checkpoint", "--check", "edited.json"];
        signed.program.run(&check).assert_ends(code, says);
        signed.program.run(&["audit", "check-proof", "edited.json", "edited.json"]).assert_ends(code, says);
    }
    // The checkpoint is whole, but not by the signer that it should be by.
    let key = signed.public_key.as_str();
    let checked =
        signed.program.run(&["audit", "checkpoint", "--check", "mallory.json", "--public-key", key]);
    checked.assert_ends(6, "is signed by the key");
    let checked =
        signed.program.run(&["audit", "checkpoint", "--check", "unsigned.json", "--public-key", key]);
    checked.assert_ends(6, "is not signed");
    assert!(unsigned["signature"].is_null() && unsigned["digest"].is_string());
    signed.assert_refused(
        &["audit", "checkpoint", "--check", "monday.json", "--heads", "unsigned.json"],
        "is not the list of heads",
    );
    signed.assert_refused(&["audit", "checkpoint", "--check", "nowhere.json"], "cannot be read");
}

#[test]
fn a_proof_is_checked_without_a_database_and_a_changed_one_is_refused() {
    let signed = Signed::new();
    let prove = ["audit", "prove", &signed.txn, "--checkpoint", "monday.json"];
    let hidden = signed.program.ok(&prove);
    assert!(!hidden.contains("alice"));
    let disclosed = signed.program.ok(&[&prove[..], &["--disclose"]].concat());
    signed.write("hidden.json", &hidden);
    signed.write("proof.json", &disclosed);
    // The proof is checked elsewhere, with these files only.
    let check = ["--database", "postgres://nobody@127.0.0.1:1/none", "audit", "check-proof"];
    let with = |proof| [&check[..], &[proof, "monday.json", "--public-key", &signed.public_key]].concat();
    let out = signed.program.ok(&with("proof.json"));
    assert!(
        out.starts_with("proven: ")
            && out.contains("login / alice@example.org  row 2  check within_limit, cost 1"),
        "{out}"
    );
    // It says how much that is, and that there may be more.
    assert!(
        out.contains("1 row of the transaction in 1 bucket\n") && out.contains("may have more rows"),
        "{out}"
    );
    assert!(!signed.program.ok(&with("hidden.json")).contains("alice"));
    let json = signed.program.run(&[&with("proof.json")[..], &["--format", "json"]].concat()).json();
    assert_eq!((&json["signed_by"], &json["rows"][0]["seq"]), (&signed.public_key.clone().into(), &2.into()));

    let good: Value = serde_json::from_str(&disclosed).unwrap();
    let flip = |text: &Value| {
        let text = text.as_str().unwrap();
        let last = if text.ends_with('0') { '1' } else { '0' };
        Value::from(format!("{}{last}", &text[..text.len() - 1]))
    };
    let of = |c: &mut Value, field: &str| {
        let value = c["buckets"][0][field].clone();
        c["buckets"][0][field] =
            if value.is_array() { Value::Array(vec![flip(&value[0])]) } else { flip(&value) };
    };
    let edits: [Edit<'_>; 9] = [
        (&|c| of(c, "before"), "do not lead to the checkpoint"),
        (&|c| of(c, "start"), "do not lead to the checkpoint"),
        (&|c| of(c, "path"), "do not lead to the checkpoint"),
        (&|c| c["buckets"][0]["index"] = 9.into(), "do not lead to the checkpoint"),
        (&|c| drop(c["buckets"][0]["rows"].as_array_mut().unwrap().pop()), "do not lead to the checkpoint"),
        (&|c| c["buckets"][0]["rows"][0] = "00".into(), "what should be a row is none"),
        (&|c| c["buckets"][0]["disclosed"]["key"] = "bob".into(), "key or the member that it discloses"),
        (&|c| c["txn_id"] = "00000000-0000-0000-0000-000000000001".into(), "no row of its transaction"),
        (&|c| c["checkpoint"] = "00".into(), "is of the checkpoint 00"),
    ];
    for (edit, says) in edits {
        let mut edited = good.clone();
        edit(&mut edited);
        signed.write("edited.json", &edited.to_string());
        signed.program.run(&["audit", "check-proof", "edited.json", "monday.json"]).assert_ends(6, says);
    }
    // A cost that is told otherwise: byte 42 of the row is the last of it.
    let mut edited = good;
    let row = edited["buckets"][0]["rows"][0].as_str().unwrap().to_owned();
    let cost = 2 * (16 + 8 + 4 + 4 + 2 + 7);
    assert_eq!(&row[cost..cost + 2], "01");
    edited["buckets"][0]["rows"][0] = format!("{}02{}", &row[..cost], &row[cost + 2..]).into();
    signed.write("edited.json", &edited.to_string());
    let checked = signed.program.run(&["audit", "check-proof", "edited.json", "monday.json"]);
    checked.assert_ends(6, "do not lead to the checkpoint");
    let unknown = ["audit", "prove", "00000000-0000-0000-0000-000000000001", "--checkpoint", "monday.json"];
    signed.assert_refused(&unknown, "no row of the ledger");
}

#[test]
fn an_export_that_was_killed_is_gone_on_with() {
    let program = Program::with_login();
    let input: String =
        (0..6_000).map(|n| format!("{{\"zone\":\"login\",\"key\":\"{}\"}}\n", n % 700)).collect();
    assert_eq!(program.feed(&["check", "--stdin"], input).code, 0);
    let until = chrono_now(&program);
    let arguments = |to| ["audit", "export", "--to", to, "--until", &until, "--part-rows", "100"];
    assert_eq!(
        program.ok(&arguments("whole")),
        "6000 rows in 60 files, removals.jsonl and manifest.json in whole\n"
    );
    let mut command = program.command(&arguments("cut"));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !program.path("cut/ledger-00003.csv").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let manifest = |to: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(program.path(to).join("manifest.json")).unwrap()).unwrap()
    };
    assert_eq!(manifest("cut")["complete"], false);
    program.ok(&arguments("cut"));
    assert_eq!(manifest("cut"), manifest("whole"));
    for file in fs::read_dir(program.path("whole")).unwrap().map(|file| file.unwrap().file_name()) {
        let bytes = |to: &str| fs::read(program.path(to).join(&file)).unwrap();
        assert!(bytes("whole") == bytes("cut"), "{file:?}");
    }
}

/// The time after the last row.
fn chrono_now(program: &Program) -> String {
    let rows = program.run(&["history", "--limit", "1", "--format", "json"]).json();
    let last: chrono::DateTime<chrono::Utc> = rows[0]["decided_at"].as_str().unwrap().parse().unwrap();
    (last + Duration::from_micros(1)).to_rfc3339()
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let signed = Signed::new();
    signed.write("file", "");
    for (arguments, says) in [
        (&["--to", "a", "--zone", "nowhere"][..], "there is no zone \"nowhere\""),
        (&["--to", "a", "--since", "7d"], "a time is written like"),
        (&["--to", "a", "--since", "2026-02-01T00:00:00Z", "--until", "2026-01-01T00:00:00Z"], "swap them"),
        (&["--to", "a", "--part-rows", "0"], "0"),
        (&["--to", "a", "--as", "xml"], "xml"),
        (&["--to", "file"], "cannot be written"),
        (&["--to", "."], "has other files"),
        (&[], "--to"),
    ] {
        signed.assert_refused(&[&["audit", "export"], arguments].concat(), says);
        assert!(!signed.program.path("a").exists(), "{arguments:?}");
    }
    // Nothing of the last 15 minutes is exported, unless it is asked for.
    let told = signed.program.ok(&["audit", "export", "--to", "a"]);
    let expected =
        "0 rows in 0 files, removals.jsonl and manifest.json in a; rows of the last 15 minutes, from 20";
    assert!(told.starts_with(expected), "{told}");
    let json = signed.program.run(&["audit", "export", "--to", "a", "--format", "json"]).json();
    assert_eq!((&json["complete"], &json["as"]), (&true.into(), &"csv".into()));
    signed
        .assert_refused(&["audit", "export", "--to", "a", "--as", "parquet"], "other rows or another format");
}
