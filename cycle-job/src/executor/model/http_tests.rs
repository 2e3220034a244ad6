use std::collections::HashMap;
use std::sync::Mutex;

use axum::Router;
use axum::extract::{OriginalUri, Request};
use axum::http::HeaderMap as Headers;
use axum::response::{IntoResponse, Redirect};
use axum::routing::any;

use super::*;

/// A name server of the test's own, which remembers how often it was asked.
#[derive(Default)]
struct Names {
    answers: HashMap<String, Vec<IpAddr>>,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, host: &str) -> std::io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(host.to_owned());
        Ok(self.answers.get(host).cloned().unwrap_or_default())
    }
}

fn secrets_dir(value: &str) -> SecretText {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("s")).unwrap();
    std::fs::write(dir.path().join("s/k"), value).unwrap();
    let secrets = crate::secrets::Secrets::new(Some(dir.path().to_owned()), "shop");
    secrets.get(&cicada_contract::plan::SecretRef { name: "s".into(), key: "k".into() }).unwrap()
}

fn rules(allowed: &[(&str, u16, bool)], names: &[(&str, &str)]) -> Rules {
    let mut answers: HashMap<String, Vec<IpAddr>> = HashMap::new();
    for (name, address) in names {
        answers.entry((*name).to_owned()).or_default().push(address.parse().unwrap());
    }
    Rules {
        allowed: allowed
            .iter()
            .map(|(host, port, private)| AllowedHost {
                host: (*host).into(),
                port: Some(*port),
                private: *private,
            })
            .collect(),
        secrets: vec![HostSecret {
            name: "crm".into(),
            value: secrets_dir("canary-value"),
            hosts: vec!["api.example.com".into()],
        }],
        resolver: Arc::new(Names { answers, asked: Mutex::default() }),
    }
}

fn get(url: impl Into<String>) -> HttpCall {
    HttpCall { method: "GET".into(), url: url.into(), ..HttpCall::default() }
}

/// A server that shows what it got, and redirects as told.
async fn server() -> u16 {
    async fn echo(OriginalUri(uri): OriginalUri, headers: Headers, request: Request) -> String {
        let method = request.method().clone();
        let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let mut shown: Vec<String> =
            headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
        shown.sort();
        format!("{method} {uri}\n{}\n\n{}", shown.join("\n"), String::from_utf8_lossy(&body))
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let app = Router::new()
        .route("/loop", any(|| async { Redirect::temporary("/loop") }))
        .route("/away", any(|| async { Redirect::temporary("http://elsewhere.test:1/") }))
        .route("/see", any(|| async { Redirect::to("/target") }))
        .route("/keep", any(|| async { Redirect::temporary("/target") }))
        .route("/metadata", any(|| async { Redirect::temporary("http://169.254.169.254/latest/") }))
        .route("/large", any(|| async { vec![b'x'; BODY_BYTES + 1].into_response() }))
        .fallback(any(echo));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    port
}

#[tokio::test]
async fn only_hosts_and_ports_of_the_manifest_are_reached() {
    let rules = rules(
        &[("api.example.com", 443, false), ("*.shop.test", 8080, false)],
        &[("api.example.com", "8.8.8.8")],
    );
    for (url, starts) in [
        ("https://other.example.com/", "other.example.com:443 is not in spec.http.allowedHosts"),
        ("http://api.example.com/", "api.example.com:80 is not in"),
        ("https://api.example.com.evil.test/", "api.example.com.evil.test:443 is not in"),
        ("http://shop.test:8080/", "shop.test:8080 is not in"),
        ("https://user:pw@api.example.com/", "https://user:pw@api.example.com/ is not a URL"),
        ("file:///etc/passwd", "file:///etc/passwd is not a URL"),
        ("ftp://api.example.com/", "ftp://api.example.com/ is not a URL"),
        ("api.example.com", "api.example.com is not a URL"),
    ] {
        let error = rules.request(&get(url)).await.unwrap_err().to_string();
        assert!(error.starts_with(starts), "{error}");
    }
}

#[tokio::test]
async fn a_name_that_leads_near_us_is_refused_even_beside_a_public_address() {
    for address in [
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "fd00::1",
        "224.0.0.1",
    ] {
        let rules = rules(
            &[("api.example.com", 443, false)],
            &[("api.example.com", "8.8.8.8"), ("api.example.com", address)],
        );
        let error = rules.request(&get("https://api.example.com/")).await.unwrap_err();
        assert!(matches!(error, HttpError::NotPublic { .. }), "{address}: {error}");
    }
    // Numbers in disguise are addresses too.
    for url in ["http://2130706433/", "http://0x7f.1/", "http://[::ffff:7f00:1]/", "http://127.1/"] {
        let host = Url::parse(url).unwrap().host_str().unwrap().trim_matches(['[', ']']).to_owned();
        let error = rules(&[(&host, 80, false)], &[]).request(&get(url)).await.unwrap_err();
        assert!(
            matches!(error, HttpError::NotPublic { .. } | HttpError::NotAllowed { .. }),
            "{url}: {error}"
        );
    }
}

#[tokio::test]
async fn private_opens_neighbours_but_never_the_metadata_service() {
    for address in [
        "169.254.169.254",
        "fd00:ec2::254",
        "fe80::1",
        "0.0.0.0",
        "224.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
    ] {
        let rules = rules(&[("near.test", 80, true)], &[("near.test", address)]);
        let error = rules.request(&get("http://near.test/")).await.unwrap_err();
        assert!(matches!(error, HttpError::NotPublic { .. }), "{address}: {error}");
    }
}

#[tokio::test]
async fn the_checked_address_is_the_one_that_is_connected_to() {
    let port = server().await;
    let rules = rules(&[("near.test", port, true)], &[("near.test", "127.0.0.1")]);
    let response = rules.request(&get(format!("http://near.test:{port}/a?b=c"))).await.unwrap();
    let body = String::from_utf8(response.body).unwrap();
    assert_eq!(response.status, 200);
    assert!(body.starts_with("GET /a?b=c\n") && body.contains(&format!("host: near.test:{port}")), "{body}");
}

#[tokio::test]
async fn each_redirect_is_checked_anew() {
    let port = server().await;
    let rules =
        rules(&[("near.test", port, true), ("169.254.169.254", 80, true)], &[("near.test", "127.0.0.1")]);
    let url = |path: &str| format!("http://near.test:{port}{path}");
    assert!(matches!(rules.request(&get(url("/away"))).await, Err(HttpError::NotAllowed { .. })));
    assert!(matches!(rules.request(&get(url("/metadata"))).await, Err(HttpError::NotPublic { .. })));
    assert!(matches!(rules.request(&get(url("/loop"))).await, Err(HttpError::TooManyRedirects)));
    let post = HttpCall {
        method: "POST".into(),
        url: url("/see"),
        headers: vec![("X-A".into(), "1".into())],
        body: Some("hi".into()),
    };
    let body = String::from_utf8(rules.request(&post).await.unwrap().body).unwrap();
    assert!(body.starts_with("GET /target\n") && body.contains("x-a: 1") && body.ends_with("\n\n"), "{body}");
    let kept = HttpCall { url: url("/keep"), ..post };
    let body = String::from_utf8(rules.request(&kept).await.unwrap().body).unwrap();
    assert!(body.starts_with("POST /target\n") && body.ends_with("\n\nhi"), "{body}");
}

#[tokio::test]
async fn a_body_above_the_bound_is_cut() {
    let port = server().await;
    let rules = rules(&[("127.0.0.1", port, true)], &[]);
    let response = rules.request(&get(format!("http://127.0.0.1:{port}/large"))).await.unwrap();
    assert_eq!((response.body.len(), response.is_truncated), (BODY_BYTES, true));
}

#[test]
fn a_secret_goes_to_its_host_by_https_only() {
    let rules = rules(
        &[("api.example.com", 443, false), ("api.example.com", 80, false), ("other.test", 443, false)],
        &[],
    );
    let call = |url: &str| HttpCall {
        headers: vec![("Authorization".into(), "Bearer {{secret:crm}}".into())],
        ..get(url)
    };
    let prepared = rules.prepare(&call("https://api.example.com/v1")).unwrap();
    assert_eq!(prepared.headers, [("authorization".to_owned(), "Bearer canary-value".to_owned())]);
    for url in ["http://api.example.com/v1", "https://other.test/"] {
        let error = rules.prepare(&call(url)).err().unwrap().to_string();
        assert_eq!(error, "secret crm is sent by https and only to api.example.com");
    }
    let unknown = HttpCall { body: Some("{{secret:db}}".into()), ..get("https://api.example.com/") };
    assert_eq!(
        rules.prepare(&unknown).err().unwrap().to_string(),
        "there is no secret db; the manifest has: crm"
    );
    // A URL is logged by everybody on the way: no placeholder is filled in there.
    let in_url = rules.prepare(&get("https://api.example.com/?k={{secret:crm}}")).unwrap();
    assert!(!in_url.url.as_str().contains("canary"));
}

#[test]
fn a_secret_never_crosses_a_redirect() {
    let rules = rules(&[("api.example.com", 443, false)], &[]);
    let call = HttpCall {
        method: "POST".into(),
        url: "https://api.example.com/a".into(),
        headers: vec![("x-key".into(), "{{secret:crm}}".into()), ("x-plain".into(), "1".into())],
        body: None,
    };
    let response = |status| HttpResponse {
        status,
        url: String::new(),
        headers: vec![("location".into(), "/b".into())],
        body: vec![],
        is_truncated: false,
    };
    let prepared = rules.prepare(&call).unwrap();
    let follow = redirect(&prepared, &response(308)).unwrap().unwrap();
    assert_eq!(follow.headers, [("x-plain".to_owned(), "1".to_owned())]);
    let with_body = rules.prepare(&HttpCall { body: Some("key={{secret:crm}}".into()), ..call }).unwrap();
    assert!(redirect(&with_body, &response(307)).is_none(), "the redirect itself is the answer");
    assert_eq!(redirect(&with_body, &response(302)).unwrap().unwrap().body, None);
}

#[test]
fn what_changes_the_world_is_known_before_it_is_sent() {
    let rules = rules(&[], &[]);
    let call = |method: &str, url: &str| HttpCall { method: method.into(), ..get(url) };
    assert!(!rules.changes_the_world(&call("GET", "https://other.test/")));
    assert!(rules.changes_the_world(&call("GET", "https://api.example.com/")));
    assert!(rules.changes_the_world(&call("POST", "https://other.test/")));
    assert!(rules.changes_the_world(&call("DELETE", "https://other.test/")));
}

#[test]
fn the_platforms_headers_are_not_the_models() {
    let rules = rules(&[("api.example.com", 443, false)], &[]);
    let call = HttpCall { headers: vec![("Host".into(), "evil".into())], ..get("https://api.example.com/") };
    assert_eq!(rules.prepare(&call).err().unwrap().to_string(), "header host is set by the platform");
}
