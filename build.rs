//! Migrations are embedded when the library is compiled: a new file has to compile it anew.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
