#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>

#include <amalgam/fabric/transport.hpp>

#include "conformance/text_operation.hpp"
#include "fabric/transports/tcp/tcp.hpp"

namespace amalgam::detail {

/// For tests: a port (tcp by default) with a record of what arrived.
struct tcp_test_port final : message_sink {
    struct arrival {
        peer_id from;
        std::uint64_t tag;
        std::string text;
    };
    using operation = conformance::text_operation;

    explicit tcp_test_port(const std::string& where, const port_options& options = {})
        : tcp_test_port(make_tcp_transport()->open(uri::parse(where), options).value()) {}
    explicit tcp_test_port(std::unique_ptr<port> opened) : end(std::move(opened)) {
        end->set_sink(this);
    }

    void on_message(message& what) noexcept override {
        arrived.push_back(
            {what.from(), what.tag(),
             std::string(reinterpret_cast<const char*>(what.bytes().data()), what.bytes().size())});
        if (on_arrival) on_arrival(what);
    }
    void on_put(const put_notice& told) noexcept override {
        notices.push_back(told);
        if (on_notice) on_notice(told);
    }
    void on_peer_down(peer_id peer, status why) noexcept override { lost.push_back({peer, why}); }

    posted post(peer_id to, std::uint64_t tag, std::string_view text, operation& op) {
        op.text = text;
        op.bytes = as_bytes_of(op.text);
        return end->post_send(to, tag, gather(&op.bytes, 1), op);
    }
    /// Posts something small enough to be copied. Failure: false if not taken at once.
    bool send(peer_id to, std::uint64_t tag, std::string_view text) {
        return post(to, tag, text, operations.emplace_back()) == posted::done;
    }
    peer_id look_up(const std::string& address) { return end->lookup(address).value(); }

    std::unique_ptr<port> end;
    std::deque<arrival> arrived;
    std::vector<put_notice> notices;
    std::vector<std::pair<peer_id, status>> lost;
    std::deque<operation> operations;
    std::function<void(message&)> on_arrival;
    std::function<void(const put_notice&)> on_notice;
};

/// Makes progress on these ports until `reached`, sleeping when idle. If that never happens, the
/// test's watchdog ends the wait.
inline void move_until(const std::vector<tcp_test_port*>& all,
                       const std::function<bool()>& reached) {
    while (!reached()) {
        std::size_t ran = 0;
        std::vector<pollfd> handles;
        for (tcp_test_port* one : all) {
            ran += one->end->progress();
            if (one->end->prepare_to_sleep())
                handles.push_back({one->end->wait_handle(), POLLIN, 0});
        }
        constexpr int moment_ms = 5;  // The condition may come true without any of these ports.
        if (ran == 0 && handles.size() == all.size() && !reached())
            ::poll(handles.data(), handles.size(), moment_ms);
    }
}

/// Connects `from` to `to`. Returns the id each has for the other.
inline std::pair<peer_id, peer_id> connect(tcp_test_port& from, tcp_test_port& to) {
    const peer_id there = from.look_up(to.end->address());
    tcp_test_port::operation op;
    const posted how = from.post(there, 0, "hello", op);
    move_until({&from, &to},
               [&] { return !to.arrived.empty() && (how == posted::done || op.over); });
    const peer_id back = to.arrived.front().from;
    to.arrived.clear();
    return {there, back};
}

/// Waits until nothing is under way from `here`, and then until a message on a later connection has
/// arrived. If that never happens, the test's watchdog ends the wait.
inline void connect_again(tcp_test_port& here, tcp_test_port& there) {
    const auto is_idle = [&] { return here.end->open_operations() == 0; };
    move_until({&here, &there}, is_idle);
    (void)here.send(here.look_up(there.end->address()), 2, "again");
    move_until({&here, &there}, [&] {
        return std::any_of(there.arrived.begin(), there.arrived.end(),
                           [](const auto& one) { return one.text == "again"; });
    });
    move_until({&here, &there}, is_idle);
}

/// Whether the peer, which echoes messages, sends back one of `bytes` bytes with its tag.
inline bool echoes(tcp_test_port& client, peer_id there, std::uint64_t tag, std::size_t bytes) {
    tcp_test_port::operation op;
    const std::string text(bytes, 'g');
    const posted how = client.post(there, tag, text, op);
    move_until({&client}, [&] { return !client.arrived.empty() || !client.lost.empty(); });
    if (client.arrived.empty()) return false;
    move_until({&client}, [&] { return op.over || how != posted::pending; });
    const bool right = client.arrived.front().tag == tag && client.arrived.front().text == text;
    client.arrived.clear();
    return right && client.lost.empty();
}

}  // namespace amalgam::detail
