//! verify, restore, gc: a damaged memory is told, and people get back to a sound one.

use std::time::Duration;

use crate::support::{Folder, Ran, command, finish, run};

fn rows(ran: &Ran) -> Vec<serde_json::Value> {
    serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err))
}

#[test]
fn verify_tells_what_it_checked_and_its_exit_code_tells_the_result() {
    let folder = Folder::after(3);
    let sound = folder.run(&["verify", "shop/clerk", "--all", "-o", "json"]);
    assert_eq!(sound.code, Some(0), "{}", sound.err);
    let checked = rows(&sound);
    assert!(checked.iter().all(|row| row["result"] == "sound"), "{checked:#?}");
    assert!(checked.iter().any(|row| row["object"] == "HEAD.json"));
    let whole = checked.iter().filter(|r| r["checked"] == "SHA-256, unpacks, schema, integrity").count();
    assert_eq!(whole, 6, "two archives of each snapshot");

    let ids = folder.snapshots();
    folder.damage(&ids[0]);
    folder.run(&["verify", "shop/clerk"]).must();
    let damaged = folder.run(&["verify", "shop/clerk", "--all", "-o", "json"]);
    assert_eq!(damaged.code, Some(1), "{}", damaged.err);
    let bad: Vec<_> = rows(&damaged).into_iter().filter(|r| r["result"] == "damaged").collect();
    assert_eq!(bad.len(), 1, "{bad:#?}");
    assert!(bad[0]["detail"].as_str().unwrap().contains("HEAD says"), "{bad:#?}");

    let lost = folder.agent_dir().join("snapshots").join(&ids[1]);
    std::fs::remove_dir_all(lost).unwrap();
    let gone = folder.run(&["verify", "shop/clerk", "-o", "json"]);
    assert_eq!(gone.code, Some(1));
    assert!(rows(&gone).iter().any(|r| r["detail"] == "it is not in the store"), "{}", gone.out);
}

#[test]
fn what_can_not_be_read_is_not_called_damaged() {
    let folder = Folder::after(1);
    std::fs::write(folder.agent_dir().join("HEAD.json"), "{\"version\": 99}").unwrap();
    assert!(folder.run(&["verify", "shop/clerk"]).ends(2).contains("HEAD has version 99"));
    let nowhere = run(&["verify", "shop/clerk", "--store", "file:///nonexistent/store"]);
    assert!(nowhere.ends(2).contains("no memory at file:///nonexistent/store"));
    let refused = run(&["verify", "a/b", "--store", "s3://bucket", "--endpoint", "http://127.0.0.1:1"]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
}

#[test]
fn a_restore_goes_back_and_can_be_taken_back() {
    let folder = Folder::after(3);
    let ids = folder.snapshots();
    let unasked = folder.run(&["restore", "shop/clerk", &ids[0]]).ends(2);
    assert!(unasked.contains("2 later snapshots are left behind") && unasked.contains("--yes"), "{unasked}");
    assert_eq!(folder.snapshots(), ids, "nobody confirmed");

    folder.run(&["restore", "shop/clerk", &ids[0], "--yes"]).must();
    assert_eq!(folder.ask("SELECT count(*) FROM visits"), "1");
    let head = folder.head();
    for id in &ids[1..] {
        let kept = head["snapshots"].as_array().unwrap().iter().find(|s| s["id"] == id.as_str()).unwrap();
        assert!(kept["pinned"].as_str().unwrap().contains(&ids[0]), "{kept}");
    }
    assert!(head["holder"].is_null(), "nobody has to wait for a command that has ended");
    folder.cycle();
    assert_eq!(folder.ask("SELECT count(*) FROM visits"), "2");
    folder.run(&["restore", "shop/clerk", &ids[2], "--yes"]).must();
    assert_eq!(folder.ask("SELECT count(*) FROM visits"), "3");
    folder.run(&["verify", "shop/clerk", "--all"]).must();
}

#[test]
fn a_restore_refuses_what_would_not_help() {
    let folder = Folder::after(2);
    let ids = folder.snapshots();
    assert!(
        folder.run(&["restore", "shop/clerk", &ids[1], "-y"]).ends(1).contains("is the current snapshot")
    );
    assert!(folder.run(&["restore", "shop/clerk", "9-9-ff", "-y"]).ends(3).contains("cicadactl snapshots"));
    let before = folder.head();
    folder.damage(&ids[0]);
    let said = folder.run(&["restore", "shop/clerk", &ids[0], "-y"]).ends(1);
    assert!(said.contains("can't be restored") && said.contains("HEAD says"), "{said}");
    assert_eq!(folder.head(), before, "HEAD was not touched");
}

#[test]
fn a_running_cycle_is_named_and_only_fenced_when_told_so() {
    let folder = Folder::after(2);
    let ids = folder.snapshots();
    folder.busy();
    for args in [
        vec!["restore", "shop/clerk", &ids[0], "--yes"],
        vec!["gc", "shop/clerk", "--yes"],
        vec!["copy", "shop/clerk", "lab/clerk", "--yes"],
    ] {
        let said = folder.run(&args).ends(4);
        assert!(said.contains("clerk-busy") && said.contains("--fence"), "{args:?}: {said}");
    }
    let asked = folder.run(&["restore", "shop/clerk", &ids[0], "--fence"]).ends(2);
    assert!(asked.contains("clerk-busy") && asked.contains("will be lost"), "{asked}");
    folder.run(&["restore", "shop/clerk", &ids[0], "--fence", "--yes"]).must();
    assert_eq!(folder.ask("SELECT count(*) FROM visits"), "1");
}

/// Whenever a restore is killed, the memory is that of before or that of after, and sound.
#[test]
fn a_killed_restore_leaves_the_old_or_the_new_memory() {
    let folder = Folder::after(2);
    let ids = folder.snapshots();
    let dir = folder.path().display().to_string();
    let (mut old, mut new) = (0, 0);
    for step in 0..24 {
        let wanted = folder.head()["current"].as_str().unwrap().to_owned();
        let mut child = command(&["restore", "shop/clerk", &ids[0], "--yes", "--fence", "--local", &dir])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(step * 12));
        child.kill().unwrap();
        child.wait().unwrap();
        let count = folder.ask("SELECT count(*) FROM visits");
        if folder.head()["current"] == wanted.as_str() {
            old += 1;
        } else {
            new += 1;
            assert_eq!(count, "1");
            // Back to where the next one starts from.
            folder.run(&["restore", "shop/clerk", &ids[1], "--yes", "--fence"]).must();
        }
        folder.run(&["verify", "shop/clerk"]).must();
    }
    assert!(old > 0, "no kill came before the end ({new} after it)");
    folder.run(&["restore", "shop/clerk", &ids[0], "--yes", "--fence"]).must();
    folder.cycle();
}

#[test]
fn two_restores_at_once_leave_one_of_them() {
    let folder = Folder::after(4);
    let ids = folder.snapshots();
    let dir = folder.path().display().to_string();
    let both: Vec<_> = [&ids[0], &ids[1]]
        .map(|id| command(&["restore", "shop/clerk", id, "--yes", "--local", &dir]))
        .into_iter()
        .map(|command| std::thread::spawn(move || finish(command)))
        .collect();
    let ended: Vec<Ran> = both.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(ended.iter().any(|ran| ran.code == Some(0)), "{ended:#?}");
    assert!(ended.iter().all(|ran| matches!(ran.code, Some(0 | 4))), "{ended:#?}");
    assert!(["1", "2"].contains(&folder.ask("SELECT count(*) FROM visits").as_str()));
    folder.run(&["verify", "shop/clerk", "--all"]).must();
}

#[test]
fn gc_shows_what_would_go_and_why_and_removes_no_more() {
    let folder = Folder::after(2);
    let stray = folder.agent_dir().join("snapshots/1-9-00000000000000aa");
    std::fs::create_dir_all(&stray).unwrap();
    std::fs::write(stray.join("memory.db.zst"), "left by a dead pod").unwrap();
    let shown = folder.run(&["gc", "shop/clerk", "-o", "json"]);
    let shown_rows = rows(&shown);
    assert_eq!(shown_rows.len(), 1, "{shown:#?}");
    assert!(shown_rows[0]["why"].as_str().unwrap().contains("no snapshot names it"));
    assert!(shown.err.contains("--yes"), "{}", shown.err);
    assert!(stray.join("memory.db.zst").exists(), "a look removes nothing");
    let done = folder.run(&["gc", "shop/clerk", "--yes", "-o", "json"]);
    assert_eq!(rows(&done)[0]["object"], shown_rows[0]["object"], "{done:#?}");
    assert!(!stray.join("memory.db.zst").exists());
    assert!(folder.run(&["gc", "shop/clerk"]).err.contains("0 objects"));
    folder.run(&["verify", "shop/clerk", "--all"]).must();
    folder.cycle();
}
