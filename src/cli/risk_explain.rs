//! `rushgate risk explain`: what is listed of somebody, by the store, and what gateways on this machine did to him.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Failure;
use super::output::print_or_json;
use super::risk_args::ExplainArgs;
use super::risk_lists::{failed, line, open_folder, place_of};
use super::times::time_text;
use crate::admin::http_risk::encoded;
use crate::admin::probe::{Explanation, LastBuyView};
use crate::admin::risk::{EntryView, now_ms};
use crate::admission::Cidr;
use crate::admission::risk::Subject;
use crate::config::KeyFiles;
use crate::protocol::UserId;
use crate::store::risk::RiskStore;

/// For a gateway's answer.
const WITHIN: Duration = Duration::from_secs(3);
/// An answer is a few hundred bytes.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

#[derive(Serialize)]
struct Report {
    user: u64,
    /// By the store; none where it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    listed: Option<Vec<EntryView>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store_error: Option<String>,
    gateways: Vec<Told>,
}

#[derive(Serialize)]
struct Told {
    admin: SocketAddr,
    #[serde(flatten)]
    explanation: Option<Explanation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs it. What cannot be asked is told; what can be is told all the same.
pub(super) async fn explain(args: ExplainArgs) -> Result<(), Failure> {
    let subjects = subjects(&args).map_err(failed)?;
    let json = args.common.json;
    let config = args.common.config.load(KeyFiles::Unopened)?;
    let mut admin = args.admin;
    if admin.is_empty() {
        admin.extend(config.admin.listen);
    }
    let place = match &args.common.data_dir {
        Some(folder) => open_folder(folder).await,
        None => place_of(&config).await,
    };
    let found = match place {
        Ok(place) => place.risk_find(&subjects).await.map_err(|error| error.to_string()),
        Err(failure) => Err(failure.message().to_owned()),
    };
    let now_ms = now_ms();
    let views = found.map(|found| {
        let views = found.into_iter().map(EntryView::from);
        views.filter(|view| !view.has_passed(now_ms)).collect()
    });
    let mut query = format!("/risk/explain?user={}", args.user);
    if let Some(ip) = args.ip {
        let _ = write!(query, "&ip={ip}");
    }
    if let Some(device) = &args.device {
        let _ = write!(query, "&device={}", encoded(device));
    }
    let mut gateways = Vec::new();
    for admin in admin {
        let (explanation, error) = match ask(admin, &query).await {
            Ok(explanation) => (Some(explanation), None),
            Err(error) => (None, Some(error)),
        };
        gateways.push(Told { admin, explanation, error });
    }
    let (listed, store_error) = match views {
        Ok(views) => (Some(views), None),
        Err(error) => (None, Some(error)),
    };
    print_or_json(json, &Report { user: args.user, listed, store_error, gateways }, text)
}

/// Everything under which he may be listed.
fn subjects(args: &ExplainArgs) -> Result<Vec<String>, String> {
    let user = UserId::new(args.user).ok_or_else(|| format!("{} is no user's number", args.user))?;
    let device = match &args.device {
        None => None,
        Some(name) => {
            Some(Subject::device(name).ok_or_else(|| format!("{name:?} is no device that could be listed"))?)
        }
    };
    let blocks = args.ip.into_iter().flat_map(|ip| {
        let ip = ip.to_canonical();
        (0..=128).rev().filter_map(move |bits| Cidr::new(ip, bits)).map(Subject::Ip)
    });
    let subjects = std::iter::once(Subject::User(user)).chain(device).chain(blocks);
    Ok(subjects.map(|subject| subject.to_string()).collect())
}

async fn ask(admin: SocketAddr, path: &str) -> Result<Explanation, String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    let exchange = async {
        let mut stream = TcpStream::connect(admin).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = match tokio::time::timeout(WITHIN, exchange).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(format!("cannot be asked: {error}; see admin.listen of the gateway")),
        Err(_) => return Err(format!("did not answer within {WITHIN:?}")),
    };
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200") {
        return Err(format!("answered {status}: {}", body.trim()));
    }
    serde_json::from_str(body).map_err(|error| format!("answered what cannot be read: {error}"))
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    match (&report.listed, &report.store_error) {
        (Some(listed), _) if listed.is_empty() => text.push_str("not listed\n"),
        (Some(listed), _) => listed.iter().for_each(|view| {
            let _ = writeln!(text, "{}", line(view));
        }),
        (None, error) => {
            let _ = writeln!(text, "the lists cannot be read: {}", error.as_deref().unwrap_or_default());
        }
    }
    for Told { admin, explanation, error } in &report.gateways {
        let _ = match (explanation, error) {
            (Some(told), _) => writeln!(text, "gateway {} ({admin}): {}", told.gateway, told_text(told)),
            (None, error) => writeln!(text, "gateway at {admin}: {}", error.as_deref().unwrap_or_default()),
        };
    }
    if report.gateways.is_empty() {
        text.push_str("no gateway was asked; name one with --admin\n");
    }
    text
}

fn told_text(told: &Explanation) -> String {
    let last = match &told.last_buy {
        None => "no BUY of this user is remembered".to_owned(),
        Some(LastBuyView { rung, status, activity, at_ms }) => {
            let at = time_text(*at_ms);
            match status {
                Some(status) => format!("last BUY in activity {activity} at {at}: {status}, by rung {rung}"),
                None => format!(
                    "last BUY in activity {activity} at {at}: passed all rungs; RESULT tells what became of it"
                ),
            }
        }
    };
    let listed = told.listed.iter().map(|one| format!("{} {}", one.subject, one.effect));
    match listed.collect::<Vec<_>>().join(", ") {
        listed if listed.is_empty() => format!("{last}; nothing is in force"),
        listed => format!("{last}; in force: {listed}"),
    }
}
