//! The plainest client: HTTP/1.1 over a unix socket, one connection kept per thread, so that the client costs little.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use testvm::Deadline;

/// Longer than any answer takes.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// A connection.
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket)
            .with_context(|| format!("connect to {}", socket.display()))?;
        stream
            .set_read_timeout(Some(ANSWER_LIMIT))
            .context("set a time limit")?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Asks for the status and waits for the answer: a daemon that answers is complete.
    pub(crate) fn ask_status(&mut self) -> Result<()> {
        let request = b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let stream = self.stream.get_mut();
        stream.write_all(request).context("send a request")?;
        let (status, text) = self.answer()?;
        ensure!(status == 200, "the status was answered {status}: {text}");
        Ok(())
    }

    /// Creates a device on a file; how long the answer took.
    pub(crate) fn create(&mut self, name: &str, file: &Path, depth: u16) -> Result<Duration> {
        let file = file.display();
        let body = format!(r#"{{"spec":"raw:{file}","depth":{depth}}}"#);
        let head = format!(
            "PUT /v1/devices/{name} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let clock = Deadline::after(ANSWER_LIMIT);
        self.stream
            .get_mut()
            .write_all((head + &body).as_bytes())
            .context("send a request")?;
        let (status, text) = self.answer()?;
        let elapsed = clock.elapsed();
        ensure!(
            status == 201,
            "creating {name} was answered {status}: {text}"
        );
        Ok(elapsed)
    }

    fn answer(&mut self) -> Result<(u16, String)> {
        let status = self.line()?;
        let status = status
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse().ok())
            .with_context(|| format!("no status in {status:?}"))?;
        let mut len_bytes = None;
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                len_bytes = Some(value.trim().parse().context("read a content length")?);
            }
        }
        let Some(len_bytes) = len_bytes else {
            bail!("an answer without a content length");
        };
        let mut body = vec![0; len_bytes];
        self.stream
            .read_exact(&mut body)
            .context("read an answer")?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).context("read an answer")?;
        ensure!(!line.is_empty(), "the daemon closed the connection");
        Ok(line.trim_end().to_owned())
    }
}
