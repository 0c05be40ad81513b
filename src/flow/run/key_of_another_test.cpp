// Members of a run with keys who say that they are another one, and who is of another run.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/temporary_key.hpp>
#include <amalgam/flow/graph.hpp>
#include <amalgam/tasks/ult.hpp>

#include "flow/channel/wire.hpp"
#include "flow/run/group_run.hpp"

namespace amalgam::detail {
namespace {

const char* const three_groups = R"({"groups": {"G0": {"endpoint": "tcp+tls://127.0.0.1:0"},
                                                "G1": {"endpoint": "tcp+tls://127.0.0.1:0"},
                                                "G2": {"endpoint": "tcp+tls://127.0.0.1:0"}}})";

class key_of_another : public testing::Test {
protected:
    key_of_another() {
        auto from = built_.add_source<int>("from", [](outlet<int>& out) { out.send(1); });
        auto middle = built_.add_stage<int, int>("middle", [](int n) { return n; });
        auto to = built_.add_sink<int>("to", [](int) {});
        built_.pipeline(from, middle, to);
        built_.group("G0").add(from);
        built_.group("G1").add(middle);
        built_.group("G2").add(to);
        std::string sentence;
        EXPECT_TRUE(built_.core().check(&config_, sentence).ok()) << sentence;
    }
    static std::vector<key_fingerprint> fingerprints_of(const std::vector<temporary_key>& keys) {
        std::vector<key_fingerprint> all;
        for (const temporary_key& each : keys)
            all.push_back(each.fingerprint());
        return all;
    }
    std::unique_ptr<engine> with_key(const temporary_key& own) const {
        return std::make_unique<engine>(
            "tcp+tls://127.0.0.1:0",
            engine_options{.ports = {.trust = own.trusting(fingerprints_of(keys_))}});
    }
    key_book book() const {
        key_book all;
        for (const key_fingerprint& each : fingerprints_of(keys_))
            all.push_back({each});
        return all;
    }
    /// What group `which` says to one who joins it as G0.
    result<void> join(engine& by, engine& which) {
        try {
            by.procedure<wire::join_signature>(wire::join)
                .on(by.lookup(which.address()))(built_.core().fingerprint(), 0, 0);
            return {};
        } catch (const error& why) {
            return failure{why.code(), why.what()};
        }
    }
    static bool has(const std::string& text, const char* part) {
        return text.find(part) != std::string::npos;
    }

    flow_config config_ = parse_flow_config(three_groups).value();
    graph built_;
    const std::vector<temporary_key> keys_ = [] {
        std::vector<temporary_key> all;
        for (const char* each : {"G0", "G1", "G2"})
            all.emplace_back(each);
        return all;
    }();
    run_options options_;
};

TEST_F(key_of_another, joins_as_nobody_but_its_owner) {
    const auto over = with_key(keys_[1]), liar = with_key(keys_[2]), right = with_key(keys_[0]);
    liar->define(library_name{wire::stay}, [] { return std::string(); });
    right->define(library_name{wire::stay}, [] { return std::string(); });
    const node_streams streams(built_.core(), {}, options_, {&over->stream()});
    group_run running(built_.core(), config_, {1, 0}, *over, streams, options_, book());
    const auto refused = join(*liar, *over);
    EXPECT_TRUE(has(refused.sentence(), "this is not group G0: it has the key of group G2"))
        << refused.sentence();
    EXPECT_TRUE(join(*right, *over)) << "the place was not taken";
    over->stop();
}

TEST_F(key_of_another, is_not_joined_where_somebody_gives_its_address_for_anothers) {
    const auto over = with_key(keys_[0]), liar = with_key(keys_[2]);
    // It would take what is for G1.
    liar->define(library_name{wire::join}, [](std::string, std::uint32_t, std::uint32_t) {});
    liar->define(library_name{wire::stay}, [] { return std::string(); });
    const node_streams streams(built_.core(), {}, options_, {&over->stream()});
    group_run running(built_.core(), config_, {0, 0}, *over, streams, options_, book());
    running.start({{over->address()}, {liar->address()}, {liar->address()}});
    running.over().wait();
    const auto failed = running.failed();
    ASSERT_TRUE(failed);
    EXPECT_TRUE(has(failed->what.sentence,
                    "cannot be joined: this is not group G1: it has the key of group G2"))
        << failed->what.sentence;
    over->stop();
}

TEST_F(key_of_another, of_another_run_is_refused_with_a_sentence) {
    const temporary_key other("G0");
    const auto over = with_key(keys_[1]), stranger = with_key(other);
    const node_streams streams(built_.core(), {}, options_, {&over->stream()});
    group_run running(built_.core(), config_, {1, 0}, *over, streams, options_, book());
    const auto refused = join(*stranger, *over);
    EXPECT_EQ(refused.code(), errc::denied);
    EXPECT_TRUE(has(refused.sentence(), "refused for want of trust")) << refused.sentence();
    over->stop();
}

}  // namespace
}  // namespace amalgam::detail
