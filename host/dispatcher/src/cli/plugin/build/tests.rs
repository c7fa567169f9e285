//! Messages about a folder before any tool is called.

use super::*;

fn args(folder: &Path) -> Args {
    Args {
        folder: folder.to_owned(),
        lang: None,
    }
}

#[test]
fn missing_folder_and_folder_without_a_project_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let told = run(&args(&folder.path().join("gone"))).unwrap_err();
    assert_eq!(told.exit, Exit::Usage);
    assert!(told.lines[0].contains("a project's folder"), "{told:?}");
    let told = run(&args(folder.path())).unwrap_err();
    assert_eq!(told.exit, Exit::Usage);
    assert!(told.lines[0].contains("wanted one of"), "{told:?}");
}

#[test]
fn component_that_no_host_accepts_is_an_error_with_its_reason() {
    let file = |name: &str| {
        let prebuilt = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/prebuilt");
        Path::new(prebuilt).join(name)
    };
    look_at(&file("order-check.wasm")).unwrap();
    let told = look_at(&file("wrong-version.wasm")).unwrap_err();
    assert_eq!(told.exit, Exit::Failed);
    assert!(told.lines[0].contains("0.9.0"), "{told:?}");
}
