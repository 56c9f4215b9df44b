//! A small client of Redis, enough for what servers are asked here. The tests' subject is the product's client, so
//! this one is independent of it.

use std::fmt::{self, Display, Formatter};
use std::net::Ipv4Addr;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::ServerError;

/// Arrays inside arrays; deeper ones are malformed.
const DEPTH_MAX: usize = 16;

/// An answer of Redis (RESP 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RespValue {
    /// `+OK`.
    Simple(String),
    /// `-ERR …`.
    Error(String),
    /// `:1`.
    Integer(i64),
    /// `$…`; `None` is nil.
    Bulk(Option<Vec<u8>>),
    /// `*…`; `None` is nil.
    Array(Option<Vec<RespValue>>),
}

/// As `redis-cli` prints to a file: one value a line, nil is an empty line.
impl Display for RespValue {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) | Self::Error(text) => out.write_str(text),
            Self::Integer(number) => write!(out, "{number}"),
            Self::Bulk(bytes) => {
                out.write_str(&String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()))
            }
            Self::Array(values) => {
                for (at, value) in values.iter().flatten().enumerate() {
                    if at > 0 {
                        out.write_str("\n")?;
                    }
                    write!(out, "{value}")?;
                }
                Ok(())
            }
        }
    }
}

/// A connection to a Redis of 127.0.0.1.
#[derive(Debug)]
pub struct RespConnection {
    stream: BufReader<TcpStream>,
}

impl RespConnection {
    /// Connects and, where there is a password, authenticates.
    ///
    /// # Errors
    /// When nothing listens there, or the password is refused.
    pub async fn connect(port: u16, password: Option<&str>) -> Result<Self, ServerError> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(ServerError::io(format!("connecting to Redis at 127.0.0.1:{port}")))?;
        let mut connection = Self { stream: BufReader::new(stream) };
        if let Some(password) = password {
            connection.call(&["AUTH", password]).await?;
        }
        Ok(connection)
    }

    /// Sends one command and reads its answer; an error answer is `ServerError::Refused`.
    ///
    /// # Errors
    /// When the connection breaks or the answer is an error.
    pub async fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Result<RespValue, ServerError> {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for argument in command {
            let argument = argument.as_ref();
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        let named = command.first().map(|name| String::from_utf8_lossy(name.as_ref()).into_owned());
        let named = named.unwrap_or_default();
        self.stream.write_all(&bytes).await.map_err(ServerError::io(format!("sending {named} to Redis")))?;
        match self.read_value(0).await? {
            RespValue::Error(answer) => Err(ServerError::Refused { name: "redis", command: named, answer }),
            value => Ok(value),
        }
    }

    async fn read_value(&mut self, depth: usize) -> Result<RespValue, ServerError> {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.map_err(ServerError::io("reading from Redis"))?;
        let malformed = || ServerError::malformed("an answer of Redis", format!("{line:?}"));
        let line = line.strip_suffix("\r\n").ok_or_else(malformed)?;
        let kind = line.chars().next().ok_or_else(malformed)?;
        let rest = line.get(1..).ok_or_else(malformed)?;
        let number = || rest.parse::<i64>().map_err(|_| malformed());
        match kind {
            '+' => Ok(RespValue::Simple(rest.to_owned())),
            '-' => Ok(RespValue::Error(rest.to_owned())),
            ':' => Ok(RespValue::Integer(number()?)),
            '$' => {
                let Ok(length) = usize::try_from(number()?) else { return Ok(RespValue::Bulk(None)) };
                let mut bytes = vec![0; length.saturating_add(2)];
                self.stream.read_exact(&mut bytes).await.map_err(ServerError::io("reading from Redis"))?;
                bytes.truncate(length);
                Ok(RespValue::Bulk(Some(bytes)))
            }
            '*' if depth < DEPTH_MAX => {
                let Ok(length) = usize::try_from(number()?) else { return Ok(RespValue::Array(None)) };
                let mut values = Vec::new();
                for _ in 0..length {
                    values.push(Box::pin(self.read_value(depth.saturating_add(1))).await?);
                }
                Ok(RespValue::Array(Some(values)))
            }
            _ => Err(malformed()),
        }
    }
}
