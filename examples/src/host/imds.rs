//! The instance metadata service of EC2: what an instance is told of itself, within a second or not at all.
//!
//! HTTP/1.1 on one connection. It is a wish, never a need: without an answer what it would have said is unknown.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// What the service said, by the path below `meta-data/`.
pub type Metadata = BTreeMap<String, String>;

/// All of it together takes no longer.
const LIMIT: Duration = Duration::from_secs(1);
/// Bytes of an answer at most.
const MOST: usize = 1 << 16;
/// The keys that are asked for. What an instance does not have answers 404.
const KEYS: [&str; 10] = [
    "instance-type",
    "instance-id",
    "security-groups",
    "mac",
    "placement/availability-zone",
    "placement/availability-zone-id",
    "placement/region",
    "placement/group-name",
    "placement/partition-number",
    "placement/host-id",
];
/// The same of each of its network interfaces.
const INTERFACE: [&str; 6] =
    ["device-number", "network-card-index", "interface-id", "security-group-ids", "subnet-id", "vpc-id"];

/// Asks the service at this address, `169.254.169.254:80` for one.
///
/// # Errors
/// That it did not answer in a second, or not as it should.
pub(super) fn ask(address: &str) -> Result<Metadata, String> {
    let address = resolved(address)?;
    let begun = Instant::now();
    let mut service = Service::connect(address, begun)?;
    let token = service.token()?.ok_or("it gives no token, which its second version needs")?;
    let mut found = Metadata::new();
    for key in KEYS {
        if let Some(value) = service.get(key, &token)? {
            found.insert(key.to_owned(), value);
        }
    }
    // Of many interfaces as many as fit into the time.
    let macs = service.get("network/interfaces/macs/", &token).ok().flatten().unwrap_or_default();
    for mac in macs.lines().map(|mac| mac.trim_end_matches('/')) {
        for key in INTERFACE {
            let path = format!("network/interfaces/macs/{mac}/{key}");
            match service.get(&path, &token) {
                Ok(Some(value)) => drop(found.insert(path, value)),
                Ok(None) => {}
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
    stream: BufReader<TcpStream>,
    host: SocketAddr,
    begun: Instant,
}

impl Service {
    fn connect(host: SocketAddr, begun: Instant) -> Result<Self, String> {
        let stream = TcpStream::connect_timeout(&host, LIMIT).map_err(|error| error.to_string())?;
        Ok(Self { stream: BufReader::new(stream), host, begun })
    }

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

    fn exchange(&mut self, method: &str, path: &str, headers: &str) -> std::io::Result<Option<String>> {
        let other = |text: &str| std::io::Error::other(text.to_owned());
        let left = LIMIT.saturating_sub(self.begun.elapsed()).max(Duration::from_millis(1));
        self.stream.get_ref().set_read_timeout(Some(left))?;
        self.stream.get_ref().set_write_timeout(Some(left))?;
        if self.begun.elapsed() > LIMIT {
            return Err(other("not within a second"));
        }
        write!(self.stream.get_mut(), "{method} {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.host)?;
        let status = self.line()?;
        let mut length = None;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().ok();
            }
        }
        let length: usize = length.ok_or_else(|| other("an answer without its length"))?;
        if length > MOST {
            return Err(other("an answer that is too long"));
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        match status.split_whitespace().nth(1) {
            Some("200") => Ok(Some(
                String::from_utf8_lossy(&body).trim().replace(|c: char| c.is_control() && c != '\n', "\u{FFFD}"),
            )),
            Some("404") => Ok(None),
            _ => Err(other(&status)),
        }
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.stream.by_ref().take(4096).read_line(&mut line)?;
        if line.is_empty() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A service that answers on one connection, slowly if it is told.
    fn service(delay: Duration) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream);
            loop {
                let (mut request, mut token) = (String::new(), false);
                if reader.read_line(&mut request).unwrap_or(0) == 0 {
                    return;
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
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                if reader.get_mut().write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        });
        address
    }

    #[test]
    fn what_the_service_says_is_asked_for_with_a_token_and_what_it_lacks_is_left_out() {
        let found = ask(&service(Duration::ZERO)).unwrap();
        let expected = [("instance-type", "p5.48xlarge"), ("network/interfaces/macs/0a:00/vpc-id", "vpc-1")];
        assert_eq!(found, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn a_service_that_is_slow_or_absent_costs_a_second_at_most() {
        let begun = Instant::now();
        assert!(ask(&service(Duration::from_millis(700))).is_err());
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        // A port that nobody has, by a listener that is gone.
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        assert!(ask(&gone).is_err());
    }
}
