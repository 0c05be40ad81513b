#include "fabric/port/framed_port.hpp"

#include <cstring>
#include <new>
#include <utility>

namespace amalgam::detail {

namespace {
/// Every transport of frames has at least those that the target carries out.
capabilities with_atomics(capabilities can) noexcept {
    if (can.atomics == atomic_mode::none) can.atomics = atomic_mode::emulated;
    return can;
}
}  // namespace

framed_port::framed_port(const port_options& options, capabilities can, std::uint64_t incarnation)
    : options_(options),
      can_(with_atomics(can)),
      incarnation_(incarnation),
      completions_(&on_first_due, this),
      peers_(*this, &on_down),
      regions_(incarnation),
      initiator_(completions_, pieces_),
      target_(regions_, pieces_, *this) {}

const capabilities& framed_port::can() const noexcept {
    return can_;
}

std::uint64_t framed_port::incarnation() const noexcept {
    return incarnation_;
}

result<peer_id> framed_port::lookup(std::string_view address) noexcept try {
    if (ending_) return {errc::closed, "the port is closing and accepts no more lookups"};
    result<std::string> key = canonical(address);
    if (!key) return key.why();
    if (const peer_record* known = peers_.find(*key)) return known->id;
    result<frame_link*> link = connect(address);
    if (!link) return link.why();
    try {
        peer_record& made = peers_.add(**link, std::string(address), std::move(*key));
        made.is_known = true;
        return made.id;
    } catch (const std::bad_alloc&) {
        (*link)->shut();
        release(**link);
        throw;
    }
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

std::string framed_port::peer_address(peer_id peer) const {
    const peer_record* record = peers_.find(peer);
    return record == nullptr ? std::string() : record->address;
}

identity framed_port::who(peer_id peer) const {
    const peer_record* record = peers_.find(peer);
    return record == nullptr || !record->up() ? identity{} : record->link->who();
}

void framed_port::close(peer_id peer) noexcept {
    peer_record* record = peers_.find(peer);
    if (record == nullptr || !record->up()) return;
    drop_unasked(peer);
    end_peer(*record, {errc::closed});
}

void framed_port::set_sink(message_sink* sink) noexcept {
    if (sink == nullptr && sink_ != nullptr)
        peers_.for_each([](peer_record& peer) { peer.is_known = true; });
    sink_ = sink;
    if (has_due() && !ending_) due();
}

namespace {
[[gnu::noinline]] std::size_t total_of_pieces(gather bytes) noexcept {
    return total_bytes(bytes);
}
}  // namespace

// Inlined into the next two.
[[gnu::always_inline]] inline posted framed_port::send_message(frame_kind kind, peer_id to,
                                                               std::uint64_t tag, gather bytes,
                                                               completion& on_done) noexcept {
    peer_record* peer = peers_.find(to);
    if (peer == nullptr || !peer->up()) [[unlikely]]
        return refuse(peer, on_done);
    const std::size_t size = bytes.size() == 1 ? bytes.front().size() : total_of_pieces(bytes);
    if (size > can_.max_message_bytes) [[unlikely]]
        return complete_later(peer, on_done, {errc::too_large});

    const posted how = peer->link->send(header_of(kind, tag, size), bytes, &on_done);
    if (how == posted::full) return no_room(*peer, on_done);
    ++peer->traffic.sent_messages;
    peer->traffic.sent_bytes += size;
    return how == posted::pending ? lent(*peer, on_done, size) : how;
}

posted framed_port::post_send(peer_id to, std::uint64_t tag, gather bytes,
                              completion& on_done) noexcept {
    return send_message(frame_kind::unexpected, to, tag, bytes, on_done);
}

posted framed_port::post_send_expected(peer_id to, std::uint64_t tag, gather bytes,
                                       completion& on_done) noexcept {
    return send_message(frame_kind::expected, to, tag, bytes, on_done);
}

posted framed_port::lent(peer_record& peer, completion& on_done, std::size_t size) noexcept {
    completions_.opened();
    mark(on_done, op_kind::send, &peer);
    on_done.port_words[1] = size;
    peer.sends.append(on_done);
    return posted::pending;
}

posted framed_port::no_room(peer_record& peer, completion& on_done) noexcept {
    return peer.up() ? posted::full : refuse(&peer, on_done);
}

posted framed_port::refuse(peer_record* peer, completion& op) noexcept {
    return complete_later(peer, op, peer == nullptr ? status{errc::disconnected} : peer->why);
}

/// Completes `op` in the next progress(), before the sink is told that the peer is down.
posted framed_port::complete_later(peer_record* peer, completion& op, status what) noexcept {
    if (ending_) return posted::full;
    completions_.opened();
    if (peer != nullptr)
        completions_.push_before(peer->down, op, what);
    else
        completions_.push(op, what, 0);
    return posted::pending;
}

posted framed_port::post_receive(peer_id from, std::uint64_t tag, mutable_bytes into,
                                 completion& on_done) noexcept {
    peer_record* peer = peers_.find(from);
    if (peer == nullptr || !peer->up()) return refuse(peer, on_done);
    completions_.opened();
    early_message* early = peer->expected.take_message(tag);
    if (early == nullptr) {
        mark(on_done, op_kind::receive, peer);
        on_done.port_words[1] = tag;
        on_done.port_words[2] = reinterpret_cast<std::uintptr_t>(into.data());
        on_done.port_words[3] = into.size();
        peer->expected.add(on_done);
        return posted::pending;
    }
    const const_bytes bytes = std::as_const(early->bytes).bytes();
    if (bytes.size() > into.size()) {
        completions_.push(on_done, {errc::too_large}, 0);
    } else {
        if (!bytes.empty()) std::memcpy(into.data(), bytes.data(), bytes.size());
        completions_.push(on_done, {}, bytes.size());
    }
    unqueued(*peer, *early);
    return posted::pending;
}

result<region> framed_port::open_region(scatter segments, access rights) noexcept {
    result<remote_key> key = regions_.open(segments, rights);
    if (!key) return key.why();
    region_opened(*key, segments);
    return region(*this, key->region, *key);
}

void framed_port::close_region(std::uint64_t id) noexcept {
    if (is_inherited()) return;
    const region_entry* entry = regions_.find(id);
    if (entry == nullptr) return;
    if (links_stand_) region_closed(entry->key(incarnation_));
    target_.close(id, peers_);
}

bool framed_port::may_access(const remote_key& key, std::uint64_t offset, std::size_t bytes,
                             access asked) const noexcept {
    return allows(key.rights, asked) && offset <= key.bytes && bytes <= key.bytes - offset;
}

posted framed_port::post_put(peer_id to, gather from, const remote_key& key, std::uint64_t offset,
                             completion& on_done) noexcept {
    peer_record* peer = peers_.find(to);
    if (peer == nullptr || !peer->up()) return refuse(peer, on_done);
    const std::size_t bytes = total_bytes(from);
    // The target checks too; this keeps a multi-frame transfer from failing halfway.
    if (!may_access(key, offset, bytes, access::write))
        return complete_later(peer, on_done, {errc::denied});
    const posted how = put(*peer, from, bytes, key, offset, on_done);
    if (how != posted::full) peer->traffic.put_bytes += bytes;
    return how;
}

posted framed_port::put(peer_record& peer, gather from, std::size_t bytes, const remote_key& key,
                        std::uint64_t offset, completion& on_done) noexcept {
    if (can_.rma == rma_mode::cross_memory || can_.shares_blocks) {
        const std::optional<status> over = direct_put(*peer.link, from, key, offset);
        if (over) return over->ok() ? posted::done : complete_later(&peer, on_done, *over);
    }
    if (starts_transfers_) {
        const auto begun = start_put(*peer.link, from, key, offset, on_done);
        if (begun) return started(peer, on_done, bytes, *begun);
    }
    return initiator_.put(peer, from, key, offset, on_done);
}

posted framed_port::post_put_notify(peer_id to, gather from, const remote_key& key,
                                    std::uint64_t offset, std::uint64_t notice,
                                    completion& on_done) noexcept {
    peer_record* peer = peers_.find(to);
    if (peer == nullptr || !peer->up()) return refuse(peer, on_done);
    const std::size_t bytes = total_bytes(from);
    if (!may_access(key, offset, bytes, access::write))
        return complete_later(peer, on_done, {errc::denied});
    const posted how = put_notify(*peer, from, key, offset, notice, on_done);
    if (how != posted::full) peer->traffic.put_bytes += bytes;
    return how;
}

posted framed_port::put_notify(peer_record& peer, gather from, const remote_key& key,
                               std::uint64_t offset, std::uint64_t notice,
                               completion& on_done) noexcept {
    // The notice goes by a frame, and must not overtake what a device still moves.
    if (starts_transfers_ && has_transfers(*peer.link)) {
        if (!queue_put_notify(*peer.link, from, key, offset, notice, on_done)) return posted::full;
        return started(peer, on_done, 0, {});
    }
    bool moved = false;
    if (can_.rma == rma_mode::cross_memory || can_.shares_blocks) {
        const std::optional<status> over = direct_put(*peer.link, from, key, offset);
        if (over && !over->ok()) return complete_later(&peer, on_done, *over);
        moved = over.has_value();
    }
    return initiator_.put_notify(peer, from, key, offset, notice, moved, on_done);
}

posted framed_port::post_fetch_add(peer_id to, const remote_key& key, std::uint64_t offset,
                                   std::uint64_t add, std::uint64_t* old,
                                   completion& on_done) noexcept {
    return post_atomic(to, key, offset, {atomic_operation::kind::fetch_add, add, 0}, old, on_done);
}

posted framed_port::post_compare_swap(peer_id to, const remote_key& key, std::uint64_t offset,
                                      std::uint64_t expected, std::uint64_t desired,
                                      std::uint64_t* old, completion& on_done) noexcept {
    return post_atomic(to, key, offset, {atomic_operation::kind::compare_swap, expected, desired},
                       old, on_done);
}

posted framed_port::post_atomic(peer_id to, const remote_key& key, std::uint64_t offset,
                                const atomic_operation& what, std::uint64_t* old,
                                completion& on_done) noexcept {
    peer_record* peer = peers_.find(to);
    if (peer == nullptr || !peer->up()) return refuse(peer, on_done);
    if (!may_access(key, offset, atomic_operation::bytes, access::read_write))
        return complete_later(peer, on_done, {errc::denied});
    if (can_.atomics == atomic_mode::native) {
        std::uint64_t before = 0;
        const std::optional<status> over = direct_atomic(*peer->link, key, offset, what, before);
        if (over && !over->ok()) return complete_later(peer, on_done, *over);
        if (over) {
            if (old != nullptr) *old = before;
            return posted::done;
        }
    }
    return initiator_.atomic(*peer, key, offset, what, old, on_done);
}

posted framed_port::post_get(peer_id to, scatter into, const remote_key& key, std::uint64_t offset,
                             completion& on_done) noexcept {
    peer_record* peer = peers_.find(to);
    if (peer == nullptr || !peer->up()) return refuse(peer, on_done);
    const std::size_t bytes = total_bytes(into);
    if (!may_access(key, offset, bytes, access::read))
        return complete_later(peer, on_done, {errc::denied});
    const posted how = get(*peer, into, bytes, key, offset, on_done);
    if (how != posted::full) peer->traffic.got_bytes += bytes;
    return how;
}

posted framed_port::get(peer_record& peer, scatter into, std::size_t bytes, const remote_key& key,
                        std::uint64_t offset, completion& on_done) noexcept {
    if (can_.rma == rma_mode::cross_memory || can_.shares_blocks) {
        const std::optional<status> over = direct_get(*peer.link, into, key, offset);
        if (over) return over->ok() ? posted::done : complete_later(&peer, on_done, *over);
    }
    if (starts_transfers_) {
        const auto begun = start_get(*peer.link, into, key, offset, on_done);
        if (begun) return started(peer, on_done, bytes, *begun);
    }
    return initiator_.get(peer, into, key, offset, on_done);
}

std::optional<status> framed_port::direct_put(frame_link&, gather, const remote_key&,
                                              std::uint64_t) noexcept {
    return std::nullopt;
}

std::optional<status> framed_port::direct_atomic(frame_link&, const remote_key&, std::uint64_t,
                                                 const atomic_operation&, std::uint64_t&) noexcept {
    return std::nullopt;
}

std::optional<status> framed_port::direct_get(frame_link&, scatter, const remote_key&,
                                              std::uint64_t) noexcept {
    return std::nullopt;
}

std::optional<framed_port::transfer_start> framed_port::start_put(frame_link&, gather,
                                                                  const remote_key&, std::uint64_t,
                                                                  completion&) noexcept {
    return std::nullopt;
}

std::optional<framed_port::transfer_start> framed_port::start_get(frame_link&, scatter,
                                                                  const remote_key&, std::uint64_t,
                                                                  completion&) noexcept {
    return std::nullopt;
}

posted framed_port::started(peer_record& peer, completion& on_done, std::size_t bytes,
                            const transfer_start& begun) noexcept {
    if (begun.how == posted::done && begun.what.ok()) count_direct(bytes);
    if (begun.how == posted::done)
        return begun.what.ok() ? posted::done : complete_later(&peer, on_done, begun.what);
    completions_.opened();
    mark(on_done, op_kind::library, &peer);
    return posted::pending;
}

void framed_port::transfer_over(completion& op, status what, std::size_t bytes) noexcept {
    if (what.ok()) count_direct(bytes);
    completions_.push(op, what, bytes);
}

void framed_port::go_on_by_frames(frame_link& link, const rma_rest& rest, completion& op) noexcept {
    completions_.withdraw(op);  // Counted again as an operation by frames.
    initiator_.go_on(*link.record, rest, op);
}

void framed_port::cancel(completion& op) noexcept {
    peer_record* peer = peer_of(op);
    switch (kind_of(op)) {
        case op_kind::send:
            if (!peer->link->forget(op)) return;  // Too late: it ends once the link has sent it.
            peer->sends.remove(op);
            break;
        case op_kind::receive:
            peer->expected.remove(op);
            break;
        case op_kind::placement:
            peer->placement.receive = nullptr;
            peer->placement.drop();
            break;
        case op_kind::transfer:
            initiator_.cancel(op);
            return;
        case op_kind::library:
            cancel_transfer(op);
            return;
        default:
            return;
    }
    completions_.finish(op, {errc::canceled}, 0);
}

std::size_t framed_port::progress(std::size_t budget) noexcept {
    if (completions_.empty() && unasked_.empty()) [[likely]]
        return move_frames(budget);
    return progress_with_due(budget);
}

[[gnu::noinline]] std::size_t framed_port::progress_with_due(std::size_t budget) noexcept {
    std::size_t ran = completions_.run(budget);
    if (!unasked_.empty() && sink_ != nullptr) ran += deliver_unasked(budget - ran);
    if (ran < budget) ran += move_frames(budget - ran);
    return ran;
}

bool framed_port::prepare_to_sleep() noexcept {
    return !has_due() && arm();
}

void framed_port::on_first_due(void* self) noexcept {
    auto& port = *static_cast<framed_port*>(self);
    if (!port.ending_) port.due();
}

std::size_t framed_port::open_operations() const noexcept {
    return completions_.open();
}

}  // namespace amalgam::detail
