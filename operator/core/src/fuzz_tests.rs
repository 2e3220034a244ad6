//! Objects that no schema would let in today: stored before a rule was made, or written by a later release.

use cicada_crds::{AgentCycle, PersistentAgent};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    decide,
    field_tests::manifests,
    observed::{CycleView, Environment, Observed},
    spec::OperatorDefaults,
};

/// Objects that are tried.
const TRIES: usize = 10_000;

/// Values in the place of others.
fn junk() -> Vec<Value> {
    let words = [
        "",
        " ",
        "Nonsense",
        "\u{0}",
        "\u{1F980}",
        "* * * * *",
        "0 0 31 2 *",
        "60 * * * *",
        "@reboot",
        "@every 1h",
        "TZ=UTC 1 * * * *",
        "* * * * * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "Europe/Atlantis",
        "LMT",
        "-1s",
        "0s",
        "1e9h",
        "99999999999999999999Gi",
        "-5Mi",
        "0",
        "1m",
        "24h1s",
        "../..",
        "9999-12-31T23:59:59Z",
        "-009999-01-01T00:00:00Z",
        "2026-12-01T07:00:00Z",
        "1-0-0",
    ];
    let numbers =
        [json!(-1), json!(0), json!(1), json!(1e308), json!(-1e308), json!(i64::MAX), json!(u64::MAX)];
    let rest = [
        json!(null),
        json!(true),
        json!(false),
        json!([]),
        json!({}),
        json!([null]),
        json!([[]]),
        json!({"x": {}}),
    ];
    let long = [json!("x".repeat(70_000)), json!(vec!["y"; 300])];
    words.into_iter().map(Value::from).chain(numbers).chain(rest).chain(long).collect()
}

/// All places in a value, as JSON pointers.
fn places(at: &str, value: &Value, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(k, v)| {
            places(&format!("{at}/{}", k.replace('~', "~0").replace('/', "~1")), v, found)
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, v)| places(&format!("{at}/{n}"), v, found))
        }
        _ => {}
    }
}

/// The same numbers in each run (xorshift, Marsaglia 2003).
struct Dice(u64);

impl Dice {
    fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let n = u64::try_from(from.len()).unwrap();
        &from[usize::try_from(self.next_u64() % n).unwrap()]
    }

    /// The value with one to three parts replaced.
    fn spoil(&mut self, value: &Value, junk: &[Value]) -> Value {
        let mut spoiled = value.clone();
        for _ in 0..=self.next_u64() % 3 {
            let mut all = vec![];
            places("", &spoiled, &mut all);
            let place = self.pick(&all[1..]).clone();
            let part = spoiled.pointer_mut(&place).unwrap();
            // Mostly of the same type, which is what passes for an object.
            let kind = std::mem::discriminant(&*part);
            let alike: Vec<&Value> = junk.iter().filter(|j| std::mem::discriminant(*j) == kind).collect();
            *part =
                if self.next_u64().is_multiple_of(8) { self.pick(junk) } else { *self.pick(&alike) }.clone();
        }
        spoiled
    }
}

/// What an operator does with an agent and its one cycle, at a time.
fn look(agent: &PersistentAgent, cycle: &AgentCycle, now: Timestamp) -> crate::Plan {
    let views = [CycleView::new(cycle, "u")];
    let environment = Environment { looks: true, ..Environment::default() };
    let defaults = OperatorDefaults::default();
    let seen = Observed::new(agent, &views, &environment, &defaults);
    decide(&seen, now)
}

/// argo-workflows#14047, kube#1556: one invalid object crashed the controller or blocked it for all others. An object
/// either can't be read, which the watch tells and passes over, or it gives a decision.
#[test]
fn no_object_makes_a_decision_panic() {
    let junk = junk();
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let now: Timestamp = "2026-12-01T07:00:00Z".parse().unwrap();
    let cycle = json!({
        "metadata": {"name": "c", "namespace": "n", "uid": "cu", "creationTimestamp": "2026-12-01T06:00:00Z"},
        "spec": {
            "agentRef": {"name": "a"}, "instruction": "i", "restore": {"snapshot": "1-1-a"}, "ttlSecondsAfterFinished": 5,
            "triggers": [{"type": "Schedule", "schedule": "morning", "slot": "2026-12-01T06:00:00Z", "token": "t"}],
        },
        "status": {"phase": "Pending", "reason": "Queued", "joined": [{"name": "d", "uid": "du"}]},
    });
    let (mut decided, mut refused) = (0, 0);
    for n in 0..TRIES {
        let spec = &manifests()[n % 4];
        let agent = json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 1, "creationTimestamp": "2026-12-01T06:00:00Z"},
            "spec": spec,
        });
        // What an earlier look wrote is spoiled as well.
        let healthy: PersistentAgent = serde_json::from_value(agent.clone()).unwrap();
        let healthy_cycle: AgentCycle = serde_json::from_value(cycle.clone()).unwrap();
        let mut agent = agent;
        agent["status"] = serde_json::to_value(look(&healthy, &healthy_cycle, now).status).unwrap();
        let spoil_agent = n % 2 == 0;
        let (agent, cycle) = match spoil_agent {
            true => (dice.spoil(&agent, &junk), cycle.clone()),
            false => (agent, dice.spoil(&cycle, &junk)),
        };
        let parsed = serde_json::from_value::<PersistentAgent>(agent)
            .and_then(|agent| Ok((agent, serde_json::from_value::<AgentCycle>(cycle)?)));
        let Ok((agent, cycle)) = parsed else {
            refused += 1;
            continue;
        };
        let plan = look(&agent, &cycle, now + SignedDuration::from_secs(60));
        let bounded = |at: Timestamp| at >= now && at <= now + SignedDuration::from_hours(2);
        assert!(plan.look_again.is_none_or(bounded), "{agent:?}");
        decided += 1;
    }
    assert!(decided > TRIES / 4 && refused > TRIES / 20, "{decided} decided, {refused} refused");
}
