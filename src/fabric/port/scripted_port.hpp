#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/eventfd.h>

#include <amalgam/core/unique_fd.hpp>

#include "fabric/memory/segments.hpp"
#include "fabric/port/framed_port.hpp"

/// A framed_port whose transport is the test: it sees every frame sent and fabricates those
/// received.
namespace amalgam::detail {

struct scripted_link final : frame_link {
    struct frame {
        frame_header header;
        std::vector<std::byte> payload;  ///< As it was when sent.
        completion* on_sent = nullptr;
        gather lent;
    };
    posted answer = posted::done;  ///< For sends with a completion; others are done or full.
    bool forgets = true;
    std::vector<frame> out;
    std::vector<completion*> detached;
    int shuts = 0;
    int resumes = 0;

    posted send(const frame_header& header, gather payload, completion* on_sent) noexcept override {
        if (answer == posted::full) return posted::full;
        frame one{header, std::vector<std::byte>(total_bytes(payload)), nullptr, {}};
        copy_out(payload, one.payload.data());
        const bool lends = answer == posted::pending && on_sent != nullptr;
        if (lends) one.on_sent = on_sent, one.lent = payload;
        out.push_back(std::move(one));
        return lends ? posted::pending : posted::done;
    }
    bool forget(completion& on_sent) noexcept override {
        if (!forgets) return false;
        std::erase_if(out, [&](const frame& one) { return one.on_sent == &on_sent; });
        return true;
    }
    void detach(completion& on_sent) noexcept override { detached.push_back(&on_sent); }
    void shut() noexcept override { ++shuts; }
};

class scripted_port final : public framed_port {
public:
    static capabilities its_capabilities() {
        capabilities can;
        can.transport = "scripted";
        can.inline_bytes = 64;
        can.max_message_bytes = std::size_t{1} << 20;
        return can;
    }
    explicit scripted_port(const port_options& options = {})
        : framed_port(options, its_capabilities()) {}
    ~scripted_port() override { end_everything(); }

    std::string address() const override { return "scripted://here"; }
    std::string explain() const override { return "a test asked for it"; }
    int wait_handle() const noexcept override { return handle_.get(); }

    using framed_port::accepted;
    using framed_port::begin_placement;
    using framed_port::deliver;
    using framed_port::end_placement;
    using framed_port::link_down;
    using framed_port::open_region;
    using framed_port::remedy;
    using framed_port::sent;
    using framed_port::unreadable;
    using framed_port::writable;

    /// A peer that connected to us.
    scripted_link& peer() {
        links.push_back(std::make_unique<scripted_link>());
        (void)accepted(*links.back(), "scripted://there");
        return *links.back();
    }
    /// Runs all due completions.
    void settle_down() {
        while (progress(64) > 0) {
        }
    }
    delivery deliver_bytes(scripted_link& from, frame_kind kind, std::uint64_t tag,
                           const std::vector<std::byte>& payload) {
        return deliver(from, header_of(kind, tag, payload.size()), payload);
    }

    std::uint64_t copied_bytes() const noexcept override { return copied; }
    identity self() const override { return own; }

    std::uint64_t copied = 0;
    identity own;
    std::function<std::size_t(std::size_t)> on_move;
    std::vector<std::unique_ptr<scripted_link>> links;
    std::vector<frame_link*> released;

protected:
    result<frame_link*> connect(std::string_view) noexcept override {
        links.push_back(std::make_unique<scripted_link>());
        return links.back().get();
    }
    result<std::string> canonical(std::string_view address) const noexcept override {
        return std::string(address);
    }
    std::size_t move_frames(std::size_t budget) noexcept override {
        return on_move ? on_move(budget) : 0;
    }
    bool arm() noexcept override { return true; }
    void release(frame_link& link) noexcept override { released.push_back(&link); }
    void resume(frame_link& link) noexcept override { ++static_cast<scripted_link&>(link).resumes; }

private:
    unique_fd handle_{::eventfd(0, EFD_CLOEXEC)};
};

}  // namespace amalgam::detail
