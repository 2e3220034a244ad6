//! What a person should read of an S3 server's refusal or of a connection that was not made, with what to
//! do. The SDK's own text is for its authors; it goes to the debug log.

use std::error::Error;

/// What an S3 error code about credentials means.
pub(super) fn refusal(code: &str) -> Option<&'static str> {
    Some(match code {
        "SignatureDoesNotMatch" => "the secret access key is wrong",
        "InvalidAccessKeyId" | "XAdminUserNotFound" | "InvalidAccessKey" => {
            "the server does not know the access key id"
        }
        "ExpiredToken" | "TokenRefreshRequired" => "the session token has expired, get a new one",
        "InvalidToken" => "the session token is not valid",
        "RequestTimeTooSkewed" => "this machine's clock is off by more than the server allows",
        "AccountProblem" | "NotSignedUp" => "the account can't be used",
        _ => return None,
    })
}

/// Why there was no connection, from the texts of the error and its sources: their types are private to
/// several libraries.
pub(super) fn connection(error: &(dyn Error + 'static), server: &str) -> String {
    let texts = texts(error);
    let any = |words: &[&str]| texts.iter().find(|text| words.iter().any(|word| text.contains(word)));
    if any(&["dns error", "failed to lookup address", "Name or service not known"]).is_some() {
        return format!(
            "no connection: the name in {server} can't be resolved; correct the endpoint, or look at the DNS"
        );
    }
    if any(&["Connection refused"]).is_some() {
        return format!(
            "no connection: nothing listens at {server}; correct the endpoint, or start the server"
        );
    }
    if any(&["InvalidContentType", "WRONG_VERSION_NUMBER", "corrupt message"]).is_some() {
        return format!("no connection: {server} does not speak TLS; write http:// in the endpoint");
    }
    if let Some(text) = any(&["certificate"]) {
        let why = certificate(text);
        return format!("no connection: the certificate of {server} is refused, {why}");
    }
    if any(&["Network is unreachable", "No route to host"]).is_some() {
        return format!("no connection: there is no way to {server}; look at the network and its policies");
    }
    if any(&["reset by peer", "broken pipe", "Broken pipe", "connection closed", "IncompleteMessage"])
        .is_some()
    {
        return format!("no connection: {server} closed it; it may want TLS (https://), or be restarting");
    }
    let last = texts.last().map_or("", String::as_str);
    format!(
        "no connection to {server}: {}",
        cicada_contract::text::cut(&cicada_contract::text::printable(last), 160)
    )
}

fn certificate(text: &str) -> &'static str {
    if text.contains("UnknownIssuer") || text.contains("unknown issuer") || text.contains("SelfSigned") {
        "nobody that is trusted has issued it; name the store's CA bundle (caConfigMapName, SSL_CERT_FILE)"
    } else if text.contains("Expired") || text.contains("expired") {
        "it has expired"
    } else if text.contains("NotValidForName") || text.contains("not valid for name") {
        "it is for another name than the endpoint's"
    } else if text.contains("NotValidYet") || text.contains("not valid yet") {
        "it is not valid yet; look at this machine's clock"
    } else {
        "it can't be verified"
    }
}

fn texts(error: &(dyn Error + 'static)) -> Vec<String> {
    let mut all = vec![];
    let mut next = Some(error);
    while let Some(error) = next {
        all.push(error.to_string());
        next = error.source();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_have_no_connection_says_what_to_do() {
        for (text, words) in [
            (
                "dns error: failed to lookup address information: Name or service not known",
                "can't be resolved",
            ),
            ("tcp connect error: Connection refused (os error 111)", "nothing listens at https://s3.test"),
            ("received corrupt message of type InvalidContentType", "does not speak TLS; write http://"),
            ("invalid peer certificate: UnknownIssuer", "name the store's CA bundle"),
            ("invalid peer certificate: certificate expired: ...", "it has expired"),
            ("invalid peer certificate: certificate not valid for name \"a\"", "it is for another name"),
            ("Connection reset by peer (os error 104)", "it may want TLS (https://)"),
            ("Network is unreachable (os error 101)", "there is no way to"),
            ("something\nelse", "no connection to https://s3.test: something else"),
        ] {
            let said = connection(&std::io::Error::other(text), "https://s3.test");
            assert!(said.starts_with("no connection") && said.contains(words), "{text}: {said}");
        }
    }
}
