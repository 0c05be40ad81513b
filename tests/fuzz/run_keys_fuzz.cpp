#include <array>
#include <string>
#include <string_view>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/fabric/identity.hpp>

#include "flow/launcher/control.hpp"
#include "flow/launcher/rank_message.hpp"
#include "flow/launcher/run_keys.hpp"
#include "flow/limits.hpp"
#include "fuzz/fuzz.hpp"

// What the processes of a run read before they know each other: lines of the launcher, those with
// keys among them, and what a rank tells through PMIx.
namespace amalgam::fuzz {

namespace {

using namespace detail;

const flow_config& our_config() {
    static const flow_config config =
        parse_flow_config(R"({"groups": {"G1": {"endpoint": "tcp+tls://127.0.0.1:0"},
                             "G2": {"endpoint": "tcp+tls://127.0.0.1:0", "replicas": 2}}})")
            .value();
    return config;
}

void check_key(const std::string& text) {
    try {
        const key_fingerprint key = parse_key_fingerprint(text);
        require(text.size() == 64, "a key is read whole");
        require(parse_key_fingerprint(to_text(key)) == key, "what is told of a key means the same");
        control_message with_key;
        with_key.what = control_message::kind::keys;
        with_key.keys = {text, to_text(key)};
        require(decode_control(encode(with_key)).value().keys == with_key.keys,
                "keys arrive as they were told");
    } catch (const error& why) {
        require(why.code() == errc::invalid && !has_controls(why.what()),
                "what is no key is refused in one line");
    }
}

void check_config(const std::string& text) {
    const auto config = parse_flow_config(text);
    if (!config) return require(config.code() == errc::invalid, "a refused config is invalid");
    const flow_config with = with_keys(*config);
    require(with_keys(with) == with, "what has keys is left as it is");
    const auto again = parse_flow_config(to_json(with));
    require(again && *again == with, "a config with keys arrives as it is");
    require(makes_keys(with) || !makes_keys(*config), "no key is lost");
    for (const group_config& one : with.groups)
        for (const std::string& endpoint : one.endpoints)
            (void)called_address({with.groups.front().endpoints.front()}, endpoint, endpoint);
}

void check_message(const control_message& message) {
    for (const std::string& key : message.keys)
        check_key(key);
    if (!message.config.empty()) check_config(message.config);
    if (message.sentence.size() > limits::max_reason_bytes) return;
    const std::string line = encode(message);
    require(line.find('\n') == line.size() - 1, "a message is one line");
    const auto again = decode_control(line);
    require(again && again->what == message.what && encode(*again) == line,
            "a message arrives as it was sent");
}

}  // namespace

void run_one(const_bytes input) {
    const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
    check_key(text);
    if (const auto line = decode_control(text))
        check_message(*line);
    else
        require(line.code() == errc::invalid && !line.sentence().empty(),
                "a refused line is told in a sentence");
    const auto told = decode_rank_message(text, our_config());
    if (!told) {
        require(told.code() == errc::mismatch && !has_controls(told.sentence()),
                "a refused rank is told in one line");
        return;
    }
    require(told->group < our_config().groups.size(), "a rank is of a group that there is");
    const group_config& group = our_config().groups[told->group];
    require(told->replica < group.replicas(), "and one of its processes");
    require(text.find(group.name) != text.npos, "as it says");
    check_message(told->said);
    const auto again = decode_rank_message(
        encode_rank_message(group.name, told->replica, told->said), our_config());
    require(again && again->group == told->group && again->replica == told->replica,
            "and is so when it says it again");
}

std::span<const std::string_view> seeds() {
    static constexpr std::array<std::string_view, 10> all{
        "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef",
        R"({"kind": "key", "keys": ["0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef"],
            "join_ms": 30000})",
        R"({"kind": "keys", "keys": ["00ff", "", "\u001b[2J"]})",
        R"({"kind": "welcome", "group": "G1", "replica": 1, "report_ms": 5, "config": "{\"groups\": )"
        R"({\"G1\": {\"endpoint\": \"ofi+tcp://eth0:0\"}, \"G2\": {\"endpoint\": )"
        R"(\"tcp://0.0.0.0:1?insecure=yes\"}, \"G3\": {\"endpoint\": \"tcp://eth0:0\"}}}"})",
        R"({"kind": "ready", "join_ms": 1e300, "graph": "7"})",
        R"({"kind": "go", "addresses": [["tcp://a:1", ""], []]})",
        R"({"kind": "refused", "sentence": "no", "because_of_other": true})",
        "G1 0 {\"kind\": \"ready\", \"address\": \"shm://a\", \"graph\": \"7\"}\n",
        "G2 1 {\"kind\": \"key\", \"join_ms\": 0, \"keys\": "
        "[\"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\"]}\n",
        "G2 2 {\"kind\": \"refused\", \"sentence\": \"no\"}\n"};
    return all;
}

}  // namespace amalgam::fuzz
