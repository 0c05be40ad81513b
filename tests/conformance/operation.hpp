#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string_view>
#include <vector>

#include <amalgam/fabric/port.hpp>

namespace amalgam {

// Makes failed expectations show names instead of bytes.
inline void PrintTo(errc code, std::ostream* to) {
    *to << name(code);
}
inline void PrintTo(status what, std::ostream* to) {
    *to << to_string(what);
}

}  // namespace amalgam

namespace amalgam::conformance {

enum class op_kind { send, send_expected, receive, put, get, put_notify, fetch_add, compare_swap };
inline constexpr op_kind every_kind[] = {
    op_kind::send, op_kind::send_expected, op_kind::receive,   op_kind::put,
    op_kind::get,  op_kind::put_notify,    op_kind::fetch_add, op_kind::compare_swap};
std::string_view name(op_kind kind) noexcept;
/// Those that this port has: an older plug-in lacks the last three.
std::span<const op_kind> kinds_of(const port& at) noexcept;
/// Whether it is fetch_add or compare_swap.
constexpr bool is_atomic(op_kind kind) noexcept {
    return kind == op_kind::fetch_add || kind == op_kind::compare_swap;
}

/// A request to a port, with the arrays it borrows.
struct request {
    op_kind kind;
    peer_id peer;
    std::uint64_t tag = 0;              ///< Also: the notice, what to add, or what is expected.
    std::vector<const_bytes> from{};    ///< Of sends and puts.
    std::vector<mutable_bytes> into{};  ///< Of receives and gets; 8 bytes for what a number was.
    remote_key key{};
    std::uint64_t offset = 0;
    std::uint64_t desired = 0;

    std::size_t bytes() const noexcept;  ///< Bytes it moves on success.

    static request send(peer_id to, std::uint64_t tag, const_bytes bytes) {
        return {op_kind::send, to, tag, {bytes}};
    }
    static request send_expected(peer_id to, std::uint64_t tag, const_bytes bytes) {
        return {op_kind::send_expected, to, tag, {bytes}};
    }
    static request receive(peer_id from, std::uint64_t tag, mutable_bytes into) {
        return {op_kind::receive, from, tag, {}, {into}};
    }
    static request put(peer_id to, std::vector<const_bytes> from, const remote_key& key,
                       std::uint64_t offset) {
        return {op_kind::put, to, 0, std::move(from), {}, key, offset};
    }
    static request get(peer_id from, std::vector<mutable_bytes> into, const remote_key& key,
                       std::uint64_t offset) {
        return {op_kind::get, from, 0, {}, std::move(into), key, offset};
    }
    static request put_notify(peer_id to, std::vector<const_bytes> from, const remote_key& key,
                              std::uint64_t offset, std::uint64_t notice) {
        return {op_kind::put_notify, to, notice, std::move(from), {}, key, offset};
    }
    /// `old`: 8 bytes for what the number was.
    static request fetch_add(peer_id at, const remote_key& key, std::uint64_t offset,
                             std::uint64_t add, mutable_bytes old) {
        return {op_kind::fetch_add, at, add, {}, {old}, key, offset};
    }
    static request compare_swap(peer_id at, const remote_key& key, std::uint64_t offset,
                                std::uint64_t expected, std::uint64_t desired, mutable_bytes old) {
        return {op_kind::compare_swap, at, expected, {}, {old}, key, offset, desired};
    }
};

class node;

/// One posted operation and its outcome. Its node keeps it until the port is gone, then checks that
/// it completed exactly once if it was pending, and never otherwise.
class operation final : public completion {
public:
    operation(node& at, request what);

    /// Posts it, or posts it again after `full`.
    posted post();

    const request& what() const noexcept { return what_; }
    posted how() const noexcept { return how_; }
    bool refused() const noexcept { return how_ == posted::full; }
    bool pending() const noexcept { return how_ == posted::pending && runs_ == 0; }
    bool over() const noexcept { return how_ == posted::done || runs_ != 0; }
    int runs() const noexcept { return runs_; }
    /// ok if it was `done` at once.
    status ended() const noexcept { return ended_; }
    errc code() const noexcept { return ended_.code; }
    std::size_t bytes() const noexcept { return bytes_; }

    /// Called on completion; not if it was `done` at once.
    std::function<void(operation&)> then;

private:
    static void ran(completion& self, status what, std::size_t bytes) noexcept;

    node& at_;
    request what_;
    posted how_ = posted::full;
    status ended_;
    std::size_t bytes_ = 0;
    int runs_ = 0;
};

}  // namespace amalgam::conformance
