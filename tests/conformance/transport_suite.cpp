#include "conformance/transport_suite.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include <poll.h>
#include <unistd.h>

namespace amalgam::conformance {
namespace {

// Tags reserved for the suite's own messages.
constexpr std::uint64_t marker_tag = 0xa11a'0000'0000'0000u;

std::map<std::string, transport_traits, std::less<>>& described() {
    static std::map<std::string, transport_traits, std::less<>> all;
    return all;
}

std::set<std::string>& brief() {
    static std::set<std::string> all;
    return all;
}

bool is_brief_now = slow_build;

std::string scheme_of(const std::string& text) {
    return text.substr(0, text.find("://"));
}

std::uint64_t next_number() {
    static std::uint64_t last = 0;
    return ++last;
}

}  // namespace

std::chrono::milliseconds patience() {
    const char* given = std::getenv("AMALGAM_PATIENCE_SECONDS");
    return std::chrono::seconds(given != nullptr ? std::atoi(given) : 100);
}

std::string filled_in(std::string where) {
    if (auto hole = where.find("{}"); hole != std::string::npos)
        where.replace(hole, 2, std::to_string(::getpid()) + "-" + std::to_string(next_number()));
    return where;
}

bool describe_transport(std::string scheme, transport_traits traits) {
    return described().insert_or_assign(std::move(scheme), std::move(traits)).second;
}

bool run_briefly(std::string uri) {
    return brief().insert(std::move(uri)).second;
}

bool is_brief() {
    return is_brief_now;
}

std::vector<std::size_t> message_sizes() {
    std::vector<std::size_t> all{0, 1, 7, 8, 9};
    for (std::size_t bytes = 47; bytes <= 65; ++bytes)
        all.push_back(bytes);
    constexpr std::size_t mib = std::size_t{1} << 20;
    for (std::size_t power = 128; power <= mib; power *= 2)
        all.insert(all.end(), {power - 1, power, power + 1});
    if (!is_brief()) all.insert(all.end(), {4 * mib + 1, 16 * mib - 1});
    all.push_back(64 * mib);
    return all;
}

void transport_suite::SetUp() {
    is_brief_now = slow_build || brief().count(GetParam()) > 0;
#if defined(__SANITIZE_THREAD__)
    // Only those tests are multi-threaded, and the others take long.
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    if (name.find("threads") == std::string::npos)
        GTEST_SKIP() << "nothing for ThreadSanitizer to see";
#endif
}

void transport_suite::TearDown() {
    for (const auto& each : nodes_)
        each->shut();
    for (child_process& child : children_)
        child.kill();
}

// ---- opening

node& transport_suite::open(const port_options& options) {
    return open_at(GetParam(), options);
}

node& transport_suite::open_at(const std::string& where, const port_options& options) {
    auto opened = registry().open(filled_in(where), options);
    nodes_.push_back(std::make_unique<node>(std::move(opened).value()));
    return *nodes_.back();
}

std::optional<std::string> transport_suite::caller_uri() {
    std::string where = client_uri(uri::parse(filled_in(GetParam())));
    auto opened = registry().open(where);
    if (!opened || opened.value()->can().listens) return std::nullopt;
    return where;
}

std::string transport_suite::address_of_nobody() {
    node& gone = open();
    std::string address = gone.end().address();
    gone.shut();
    return address;
}

const transport_traits& transport_suite::traits() const {
    static const transport_traits plain;
    auto found = described().find(scheme_of(GetParam()));
    return found == described().end() ? plain : found->second;
}

transport_registry& transport_suite::registry() {
    // Created with the first port: children must be forked with nothing open.
    if (!registry_) registry_.emplace(traits().registry());
    return *registry_;
}

connection transport_suite::connect(node& a, node& b) {
    auto looked_up = a.end().lookup(b.end().address());
    connection made{a, b, std::move(looked_up).value(), {}};
    auto greet = [&](node& from, peer_id to, node& at) {
        std::uint64_t tag = marker_tag + next_number();
        start(from, request::send(to, tag, {}));
        return take_marker(at, tag).from;
    };
    made.a_at_b = greet(a, made.b_at_a, b);
    EXPECT_EQ(greet(b, made.a_at_b, a), made.b_at_a)
        << "an answer did not come from the peer that was asked";
    return made;
}

// ---- progress

std::size_t transport_suite::move() {
    std::size_t ran = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i)  // Callbacks may open more.
        if (nodes_[i]->is_open()) ran += nodes_[i]->progress();
    return ran;
}

void transport_suite::sleep_a_moment() {
    std::vector<pollfd> handles;
    bool driven = false;
    for (const auto& each : nodes_) {
        if (!each->is_open()) continue;
        driven = driven || each->driven();
        if (driven) continue;
        if (!each->end().prepare_to_sleep()) return;
        handles.push_back({each->end().wait_handle(), POLLIN, 0});
    }
    if (traits().pass_time) traits().pass_time();
    if (driven) return;
    if (heard_fd_ >= 0) handles.push_back({heard_fd_, POLLIN, 0});
    constexpr int moment_ms = 5;
    ::poll(handles.data(), handles.size(), moment_ms);
}

void transport_suite::until(std::string_view what, const std::function<bool()>& reached) {
    auto deadline = std::chrono::steady_clock::now() + patience();
    while (!reached()) {
        if (move() == 0) sleep_a_moment();
        if (std::chrono::steady_clock::now() > deadline) give_up(what);
    }
}

void transport_suite::give_up(std::string_view what) {
    std::fprintf(stderr, "gave up waiting for %.*s; pending operations of the open ports:",
                 static_cast<int>(what.size()), what.data());
    for (const auto& each : nodes_)
        if (each->is_open()) std::fprintf(stderr, " %zu", each->open_operations());
    std::fprintf(stderr, "\n");
    std::fflush(nullptr);
    std::abort();
}

operation& transport_suite::start(node& at, request what) {
    operation& op = at.try_post(std::move(what));
    until("room to post", [&] { return !op.refused() || op.post() != posted::full; });
    return op;
}

operation& transport_suite::complete(node& at, request what) {
    operation& op = start(at, std::move(what));
    finish(op);
    return op;
}

void transport_suite::finish(const operation& op) {
    std::string what = "the end of a " + std::string(name(op.what().kind));
    until(what, [&] { return op.over(); });
}

void transport_suite::finish(const std::vector<operation*>& ops) {
    for (const operation* op : ops)
        finish(*op);
}

void transport_suite::flush(const connection& over) {
    std::uint64_t tag = marker_tag + next_number();
    start(over.a, request::send(over.b_at_a, tag, {}));
    take_marker(over.b, tag);
}

arrival transport_suite::take_marker(node& at, std::uint64_t tag) {
    auto marker = at.arrived.end();
    until("a marker behind what was sent", [&] {
        marker = std::find_if(at.arrived.begin(), at.arrived.end(),
                              [&](const arrival& one) { return one.tag == tag; });
        return marker != at.arrived.end();
    });
    arrival taken = std::move(*marker);
    at.arrived.erase(marker);
    return taken;
}

arrival transport_suite::next_arrival(node& at) {
    until("a message", [&] { return !at.arrived.empty(); });
    arrival first = std::move(at.arrived.front());
    at.arrived.pop_front();
    return first;
}

std::string transport_suite::hear(channel& line) {
    std::optional<std::string> text;
    heard_fd_ = line.fd();
    until("a word from another process", [&] {
        text = line.overhear();
        return text.has_value();
    });
    heard_fd_ = -1;
    return *text;
}

// ---- memory and processes

mutable_bytes transport_suite::zeroed(std::size_t bytes) {
    // Of large memory, what a test does not use is never touched.
    memory_.emplace_back(static_cast<std::byte*>(std::calloc(std::max<std::size_t>(bytes, 1), 1)));
    if (memory_.back() == nullptr) throw std::bad_alloc();
    return {memory_.back().get(), bytes};
}

mutable_bytes transport_suite::patterned(std::size_t bytes, std::uint64_t seed) {
    mutable_bytes made = zeroed(bytes);
    fill_pattern(made, seed);
    return made;
}

bool transport_suite::can(bool capabilities::*what) {
    child_process& asked =
        spawn([&](channel& parent) { parent.say(open().end().can().*what ? "yes" : "no"); });
    std::string answer = asked.line().hear();
    EXPECT_EQ(asked.join(), 0);
    return answer == "yes";
}

child_process& transport_suite::spawn(const std::function<void(channel&)>& body) {
    for (const auto& each : nodes_)
        EXPECT_FALSE(each->is_open()) << "children are forked before ports are opened";
    registry_.reset();
    children_.emplace_back([&](channel& parent) {
        body(parent);
        for (const auto& each : nodes_)
            each->shut();
        return 0;
    });
    return children_.back();
}

}  // namespace amalgam::conformance
