//! placeholder
use super::Failure;
#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {}
pub(super) fn run(_args: DemoArgs) -> Result<(), Failure> {
    Ok(())
}
