//! An identity provider that is not ours: PyJWT signs its tokens, and Python's HTTP server has its
//! keys. Knows nothing of the program.

use crate::http;
use crate::toolchains::python;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};

const PACKAGES: [&str; 2] = ["PyJWT==2.15.1", "cryptography==50.0.2"];

/// Prints its port. Answers `GET /keys` with its keys, and `POST /token` with a token of these
/// claims; `POST /rotate` gives it a new key. Ends with its standard input.
const SCRIPT: &str = r#"
import json, os, sys, threading
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

def public(algorithm, key, number):
    described = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    return {**described, 'kid': f'{algorithm}-{number}', 'alg': algorithm, 'use': 'sig'}

class Provider:
    number = 0

    def rotate(self):
        self.number += 1
        self.keys = {
            'RS256': rsa.generate_private_key(public_exponent=65537, key_size=2048),
            'ES256': ec.generate_private_key(ec.SECP256R1()),
        }

    def public_keys(self):
        return {'keys': [public(*named, self.number) for named in self.keys.items()]}

    def token(self, asked):
        algorithm, claims = asked['alg'], asked['claims']
        headers = {'kid': asked.get('kid') or f'{algorithm}-{self.number}'}
        if algorithm == 'none':
            return jwt.encode(claims, None, 'none', headers=headers)
        if algorithm == 'HS256':
            # The public key as a shared secret, as an attacker has it.
            key = self.keys['RS256'].public_key().public_numbers().n.to_bytes(256, 'big')
            return jwt.encode(claims, key, 'HS256', headers=headers)
        key = self.keys[algorithm]
        if asked.get('forged'):
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        return jwt.encode(claims, key, algorithm, headers=headers)

provider = Provider()
provider.rotate()

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(json.dumps(provider.public_keys()))

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        if self.path == '/rotate':
            provider.rotate()
            self.answer('')
        else:
            self.answer(provider.token(asked))

    def answer(self, text):
        self.send_response(200)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
print(json.dumps({'port': server.server_port}), flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
os._exit(0)
"#;

/// The provider. Ends when dropped.
#[derive(Debug)]
pub struct IdentityProvider {
    child: Child,
    /// It ends with this pipe.
    _alive: Option<ChildStdin>,
    url: String,
}

impl IdentityProvider {
    /// Starts one.
    pub fn start() -> Self {
        let mut child = Command::new(python(&PACKAGES))
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("python starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let first = lines.next().and_then(Result::ok).unwrap_or_default();
        let first: Value = serde_json::from_str(&first).expect("the port");
        Self {
            url: format!("http://127.0.0.1:{}", first["port"]),
            _alive: child.stdin.take(),
            child,
        }
    }

    /// The URL of its keys.
    pub fn keys_url(&self) -> String {
        format!("{}/keys", self.url)
    }

    /// Its keys.
    pub fn keys(&self) -> String {
        http::get(&self.keys_url()).body
    }

    /// Gives it new keys.
    pub fn rotate(&self) {
        self.post("rotate", &json!({}));
    }

    /// A token with these claims, and as `how` says.
    pub fn token(&self, claims: &Value, how: &Value) -> String {
        let mut asked = json!({"alg": "RS256", "claims": claims});
        for (name, value) in how.as_object().expect("an object") {
            asked[name] = value.clone();
        }
        self.post("token", &asked)
    }

    fn post(&self, path: &str, asked: &Value) -> String {
        let answer = http::post(&format!("{}/{path}", self.url), &[], &asked.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }
}

impl Drop for IdentityProvider {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
