#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <amalgam/fabric/port.hpp>

#include "conformance/operation.hpp"

namespace amalgam::conformance {

/// A received message.
struct arrival {
    peer_id from;
    std::uint64_t tag;
    std::vector<std::byte> bytes;
};

struct peer_loss {
    peer_id peer;
    status why;
};

/// A port that records all requests and arrivals, and checks the invariants: callbacks only where
/// allowed, each pending operation completed once, each peer lost once and silent afterwards.
class node final : public message_sink {
public:
    explicit node(std::unique_ptr<port> end);
    ~node();

    port& end() noexcept { return *end_; }
    bool is_open() const noexcept { return end_ != nullptr; }
    bool driven() const noexcept { return driven_; }

    /// Posts once; the result may be `full`.
    operation& try_post(request what);
    std::size_t progress(std::size_t budget = 64);
    void cancel(operation& op);
    /// Closes the connection; anything that still arrives from this peer is a failure.
    void close(peer_id peer);
    /// Destroys the port and checks the record. Regions must be gone.
    void shut();

    void listen() { end_->set_sink(this); }
    void be_deaf() { end_->set_sink(nullptr); }

    std::deque<arrival> arrived;
    std::deque<put_notice> notices;
    std::vector<peer_loss> lost;
    std::uint64_t callbacks = 0;  ///< Messages and completions so far.
    /// If set, called instead of recording in `arrived`.
    std::function<void(message&)> on_arrival;
    /// If set, called instead of recording in `notices`.
    std::function<void(const put_notice&)> on_notice;
    std::function<void(peer_id, status)> on_loss;

    std::size_t open_operations() const noexcept { return open_count_; }
    bool has_lost(peer_id peer) const noexcept { return down_.count(peer) != 0; }
    /// Why a peer was lost. Precondition: has_lost(peer).
    errc loss_of(peer_id peer) const noexcept;

    /// While one lives, any callback is a failure: ports may call back only from few places.
    class callbacks_forbidden {
    public:
        explicit callbacks_forbidden(node& at) noexcept : at_(at), before_(at.may_call_back_) {
            at_.may_call_back_ = false;
        }
        ~callbacks_forbidden() { at_.may_call_back_ = before_; }
        callbacks_forbidden(const callbacks_forbidden&) = delete;

    private:
        node& at_;
        bool before_;
    };

    void took(operation& op);
    void completed(operation& op);

private:
    void on_message(message& what) noexcept override;
    void on_put(const put_notice& what) noexcept override;
    void on_peer_down(peer_id peer, status why) noexcept override;
    void expect_callback_allowed(const char* which) const;
    void expect_heard_of(peer_id peer) const;

    std::unique_ptr<port> end_;
    bool driven_;
    bool may_call_back_ = false;
    bool shutting_ = false;
    std::size_t open_count_ = 0;
    std::unordered_map<peer_id, std::size_t> open_of_;
    std::unordered_set<peer_id> down_;
    std::unordered_set<peer_id> closed_;
    std::vector<std::unique_ptr<operation>> record_;
};

}  // namespace amalgam::conformance
