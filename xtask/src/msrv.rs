//! The lowest Rust that each published package says it needs, and that it does compile there.
//!
//! Only what users compile: no tests, and no feature, as one may need what its dependency needs.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::Error;
use crate::workspace;

/// Compiles each package with the Rust that its manifest names.
pub(crate) fn run() -> Result<(), Error> {
    let metadata = workspace::metadata()?;
    let target = workspace::target_folder()?;
    for (version, names) in by_version(&metadata)? {
        let run = ["run", version, "cargo", "check", "--quiet"];
        let mut rustup = workspace::command("rustup", &run);
        rustup.arg("--target-dir").arg(target.join(format!("msrv-{version}")));
        for name in names {
            rustup.args(["--package", name]);
        }
        // What an older compiler warns of, ours need not.
        rustup.env("RUSTFLAGS", "--cap-lints allow");
        // The cargo that runs us says which compiler its children take.
        rustup.env_remove("RUSTC").env_remove("CARGO");
        println!("{}", workspace::line(&rustup));
        workspace::run(&mut rustup).map_err(|error| match error {
            Error::Failed { .. } => Error::Rust { version: version.to_owned() },
            other => other,
        })?;
    }
    Ok(())
}

/// The published packages, by the version of Rust that they name.
fn by_version(metadata: &Value) -> Result<BTreeMap<&str, Vec<&str>>, Error> {
    let packages = metadata["packages"].as_array().ok_or(Error::Metadata { what: "packages" })?;
    let mut versions: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for package in packages.iter().filter(|it| it["publish"].is_null()) {
        let named = package["rust_version"].as_str().zip(package["name"].as_str());
        let (version, name) = named.ok_or(Error::Metadata { what: "package's rust_version" })?;
        versions.entry(version).or_default().push(name);
    }
    Ok(versions)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, version: Option<&str>, publish: Value) -> Value {
        json!({ "name": name, "rust_version": version, "publish": publish })
    }

    #[test]
    fn each_published_package_is_compiled_by_its_own() {
        let all = json!({ "packages": [
            package("a", Some("1.89"), json!(null)),
            package("b", Some("1.91"), json!(null)),
            package("c", Some("1.89"), json!(null)),
            package("d", Some("1.95"), json!([])),
        ] });
        let expected = BTreeMap::from([("1.89", vec!["a", "c"]), ("1.91", vec!["b"])]);
        assert_eq!(by_version(&all).expect("cargo's format"), expected);
        let none = json!({ "packages": [package("a", None, json!(null))] });
        assert!(by_version(&none).is_err(), "a published package names a version");
    }
}
