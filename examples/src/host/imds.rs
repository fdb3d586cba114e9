//! The instance metadata service of EC2: what an instance is told of itself, within a second or not at all.
//!
//! HTTP/1.1, on one connection where the service keeps it. It is a wish, never a need: without an answer what it
//! would have said is unknown.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// What the service said, by the path below `meta-data/`.
pub type Metadata = BTreeMap<String, String>;

/// All of it together takes no longer.
const LIMIT: Duration = Duration::from_secs(1);
/// Bytes of an answer at most.
const MOST: usize = 1 << 16;
/// The keys that are asked for. What an instance does not have answers 404.
const KEYS: [&str; 6] = [
    "instance-type",
    "instance-id",
    "placement/availability-zone-id",
    "placement/region",
    "placement/group-name",
    "placement/host-id",
];
/// The same of each of its network interfaces. None says whether it is an EFA.
const INTERFACE: [&str; 3] = ["vpc-id", "subnet-id", "security-group-ids"];

/// Asks the service at this address, `169.254.169.254:80` for one. What does not fit into the second is left out.
///
/// # Errors
/// That it did not answer in a second, or not as it should.
pub(super) fn ask(address: &str) -> Result<Metadata, String> {
    let mut service = Service { host: resolved(address)?, begun: Instant::now(), stream: None };
    let token = service.token()?.ok_or("it gives no token, which its second version needs")?;
    let mut found = Metadata::new();
    for key in KEYS {
        match service.get(key, &token) {
            Ok(value) => found.extend(value.map(|value| (key.to_owned(), value))),
            Err(error) if found.is_empty() => return Err(error),
            Err(_) => return Ok(found),
        }
    }
    let macs = service.get("network/interfaces/macs/", &token).ok().flatten().unwrap_or_default();
    for mac in macs.lines().map(|mac| mac.trim_end_matches('/')) {
        for key in INTERFACE {
            let path = format!("network/interfaces/macs/{mac}/{key}");
            match service.get(&path, &token) {
                Ok(value) => found.extend(value.map(|value| (path, value))),
                Err(_) => return Ok(found),
            }
        }
    }
    Ok(found)
}

fn resolved(address: &str) -> Result<SocketAddr, String> {
    let told = |error: String| format!("{address}: {error}");
    let mut found = address.to_socket_addrs().map_err(|error| told(error.to_string()))?;
    found.next().ok_or_else(|| told("no address".to_owned()))
}

struct Service {
    host: SocketAddr,
    begun: Instant,
    /// Until the service closes it, which it may do after each answer.
    stream: Option<BufReader<TcpStream>>,
}

impl Service {
    fn token(&mut self) -> Result<Option<String>, String> {
        self.request("PUT", "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds: 60\r\nContent-Length: 0\r\n")
    }

    fn get(&mut self, key: &str, token: &str) -> Result<Option<String>, String> {
        self.request("GET", &format!("/latest/meta-data/{key}"), &format!("X-aws-ec2-metadata-token: {token}\r\n"))
    }

    /// The answer's text; `None` if there is no such thing.
    fn request(&mut self, method: &str, path: &str, headers: &str) -> Result<Option<String>, String> {
        self.exchange(method, path, headers).map_err(|error| format!("{method} {path}: {error}"))
    }

    fn exchange(&mut self, method: &str, path: &str, headers: &str) -> io::Result<Option<String>> {
        let left = LIMIT.saturating_sub(self.begun.elapsed());
        if left.is_zero() {
            return Err(io::Error::other("not within a second"));
        }
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(TcpStream::connect_timeout(&self.host, left)?),
        };
        stream.get_ref().set_read_timeout(Some(left))?;
        stream.get_ref().set_write_timeout(Some(left))?;
        write!(stream.get_mut(), "{method} {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.host)?;
        let status = line(&mut stream)?;
        let (mut length, mut closes) = (None, false);
        loop {
            let line = line(&mut stream)?;
            let Some((name, value)) = line.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok(),
                "connection" => closes = value.trim().eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
        let length: usize = length.ok_or_else(|| io::Error::other("an answer without its length"))?;
        if length > MOST {
            return Err(io::Error::other("an answer that is too long"));
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        self.stream = (!closes).then_some(stream);
        let text = || String::from_utf8_lossy(&body).trim().replace(|c: char| c.is_control() && c != '\n', "\u{FFFD}");
        match status.split_whitespace().nth(1) {
            Some("200") => Ok(Some(text())),
            Some("404") => Ok(None),
            _ => Err(io::Error::other(status)),
        }
    }
}

fn line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    stream.by_ref().take(4096).read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A service that answers, slowly if it is told, and closes each connection after its answer or not.
    fn service(delay: Duration, closes: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut reader = BufReader::new(stream.unwrap());
                while answer(&mut reader, delay, closes) && !closes {}
            }
        });
        address
    }

    fn answer(reader: &mut BufReader<TcpStream>, delay: Duration, closes: bool) -> bool {
        let (mut request, mut token) = (String::new(), false);
        if reader.read_line(&mut request).unwrap_or(0) == 0 {
            return false;
        }
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).unwrap();
            token |= header.starts_with("X-aws-ec2-metadata-token: secret");
            if header.trim().is_empty() {
                break;
            }
        }
        thread::sleep(delay);
        let path = request.split_whitespace().nth(1).unwrap_or_default();
        let (status, body) = match path.strip_prefix("/latest/meta-data/") {
            None => ("200 OK", "secret"),
            Some(_) if !token => ("401 Unauthorized", ""),
            Some("instance-type") => ("200 OK", "p5.48xlarge"),
            Some("network/interfaces/macs/") => ("200 OK", "0a:00/\n"),
            Some("network/interfaces/macs/0a:00/vpc-id") => ("200 OK", "vpc-1"),
            Some(_) => ("404 Not Found", "<html>"),
        };
        let connection = if closes { "Connection: close\r\n" } else { "" };
        let answer = format!("HTTP/1.1 {status}\r\n{connection}Content-Length: {}\r\n\r\n{body}", body.len());
        reader.get_mut().write_all(answer.as_bytes()).is_ok()
    }

    #[test]
    fn what_the_service_says_is_asked_for_with_a_token_and_what_it_lacks_is_left_out() {
        let expected = [("instance-type", "p5.48xlarge"), ("network/interfaces/macs/0a:00/vpc-id", "vpc-1")];
        let expected: Metadata = expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        for closes in [false, true] {
            assert_eq!(ask(&service(Duration::ZERO, closes)).unwrap(), expected);
        }
    }

    #[test]
    fn a_service_that_is_slow_or_absent_costs_a_second_at_most() {
        let begun = Instant::now();
        assert!(ask(&service(Duration::from_millis(700), false)).is_err());
        // What it said before the time was over counts.
        let some = ask(&service(Duration::from_millis(300), false)).unwrap();
        assert!(some.contains_key("instance-type") && some.len() == 1, "{some:?}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        // A port that nobody has, by a listener that is gone.
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        assert!(ask(&gone).is_err());
    }
}
