//! What is sent comes back, however it is cut, from every runtime.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "tests"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

struct Served {
    child: Child,
    addr: String,
}

impl Served {
    fn start(runtime: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rushgate-echo"))
            .args(["--runtime", runtime])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut addr = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut addr).unwrap();
        Self { child, addr: addr.trim().to_owned() }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.addr).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn frame(body_bytes: u32) -> Vec<u8> {
    let mut frame = body_bytes.to_be_bytes().to_vec();
    frame.extend((0..body_bytes).map(|at| u8::try_from(at % 251).unwrap()));
    frame
}

fn on_each_runtime(check: impl Fn(&Served)) {
    for runtime in ["epoll", "tokio", "tokio-multi"] {
        check(&Served::start(runtime));
    }
}

#[test]
fn frames_come_back_and_half_a_frame_waits_for_its_rest() {
    on_each_runtime(|served| {
        let mut stream = served.connect();
        for byte in [frame(36), frame(0)].concat() {
            stream.write_all(&[byte]).unwrap();
        }
        let mut back = vec![0; 44];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, [frame(36), frame(0)].concat());
        let longest = frame(65_532);
        stream.write_all(&longest).unwrap();
        let mut back = vec![0; longest.len()];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, longest);
    });
}

#[test]
fn a_slow_reader_gets_everything_and_does_not_hold_up_the_others() {
    on_each_runtime(|served| {
        let sent = frame(40).repeat(400_000);
        let slow = served.connect();
        let (mut writer, expected) = (slow.try_clone().unwrap(), sent.clone());
        let writing = thread::spawn(move || writer.write_all(&sent).unwrap());
        let mut other = served.connect();
        for _ in 0..100 {
            other.write_all(&frame(20)).unwrap();
            let mut back = [0; 24];
            other.read_exact(&mut back).unwrap();
            assert_eq!(back[..], frame(20));
        }
        let mut back = vec![0; expected.len()];
        let mut reader = slow;
        reader.read_exact(&mut back).unwrap();
        assert!(back == expected, "what came back is not what was sent");
        writing.join().unwrap();
    });
}

#[test]
fn an_announced_length_past_the_cap_ends_that_connection_alone() {
    on_each_runtime(|served| {
        let mut kept = served.connect();
        let mut bad = served.connect();
        bad.write_all(&[255; 4]).unwrap();
        assert_eq!(bad.read(&mut [0; 8]).unwrap(), 0);
        kept.write_all(&frame(8)).unwrap();
        let mut back = [0; 12];
        kept.read_exact(&mut back).unwrap();
    });
}
