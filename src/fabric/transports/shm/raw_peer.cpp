#include "fabric/transports/shm/raw_peer.hpp"

#include <array>
#include <stdexcept>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include <amalgam/core/random.hpp>
#include <amalgam/core/uri.hpp>

#include "fabric/limits.hpp"
#include "fabric/transports/shm/memory/mapping.hpp"
#include "fabric/transports/shm/users.hpp"

namespace amalgam::detail {
namespace {

void check(bool done, const char* what) {
    if (!done) throw std::runtime_error(what);
}

void wait_for(int fd, short events) {
    pollfd look{fd, events, 0};
    check(::poll(&look, 1, -1) == 1, "poll");
}

std::vector<std::byte> noise(seeded_random& dice, std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::byte& one : bytes)
        one = static_cast<std::byte>(dice());
    return bytes;
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Unknown frame kinds: neither framed_port's nor the transport's.
frame_kind unknown_kind(seeded_random& dice) {
    const auto pick = static_cast<std::uint8_t>(dice.below(200));
    const auto first = static_cast<std::uint8_t>(frame_kind::last_of_port) + 1;
    const auto below_pieces = static_cast<std::uint8_t>(shm_piece_kind) - first;
    return static_cast<frame_kind>(first + pick + (pick < below_pieces ? 0 : 2));
}

/// The first record of a large frame.
void begin(shm_raw_peer& peer, frame_kind kind, std::uint32_t bytes, seeded_random& dice) {
    peer.write(kind, bytes, noise(dice, limits::shm_prefix_bytes));
}

void add_piece(shm_raw_peer& peer, std::uint32_t bytes, seeded_random& dice) {
    peer.write(shm_piece_kind, bytes, noise(dice, bytes));
}

}  // namespace

shm_raw_peer::shm_raw_peer(std::string_view address)
    : pair_memory_(make_shm_memory(shm_pair_layout::bytes).value().release()),
      registrations_memory_(make_shm_memory(shm_registrations_layout::bytes).value().release()),
      origins_{random_u64(), random_u64()},
      pair_(shm_pair::map(pair_memory_.get(), shm_pair::side::connector, origins_).value()),
      writer_(pair_.sender()),
      reader_(pair_.receiver()) {
    const uri where = uri::parse(address);
    const auto user = where.option("uid");
    const uid_t uid = user ? parse_uid(*user).value() : ::geteuid();
    while (!socket_)  // The backlog may be full.
        socket_ = connect_to(where.name, uid);
}

shm_hello shm_raw_peer::proper() const {
    shm_hello say;
    say.incarnation = probe_.token();
    say.probe = probe_.address();
    say.origin_to_acceptor = origins_.to_acceptor;
    say.origin_to_connector = origins_.to_connector;
    return say;
}

void shm_raw_peer::say(const shm_hello& hello, int pair, int registrations) {
    check(send_hello(socket_.get(), hello, pair, registrations), "send a hello");
}

void shm_raw_peer::send_bytes(std::string_view bytes) {
    check(::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0, "send");
}

void shm_raw_peer::greet() {
    say(proper(), pair_memory_.get(), registrations_memory_.get());
    shm_received_hello answer;
    wait_for(socket_.get(), POLLIN);
    check(receive_hello(socket_.get(), false, answer) == shm_hearing::heard, "receive an answer");
    answer_ = answer.said;
    registrations_ = shm_registrations_view(shm_mapping::of(
        answer.registrations.get(), 0, shm_registrations_layout::bytes, /*writable=*/false));
}

bool shm_raw_peer::try_write(frame_kind kind, std::uint32_t claimed_bytes, const_bytes payload,
                             std::uint64_t tag) {
    frame_header header;
    header.bytes = claimed_bytes;
    header.kind = kind;
    header.tag = tag;
    return writer_.write(header, gather(&payload, 1), payload.size());
}

void shm_raw_peer::write(frame_kind kind, std::uint32_t claimed_bytes, const_bytes payload,
                         std::uint64_t tag) {
    while (!try_write(kind, claimed_bytes, payload, tag)) {
        check(!writer_.broken(), "the port claims to have read bytes that were never written");
        if (!still_there(socket_.get())) return;
        ring();
        std::this_thread::yield();
    }
}

void shm_raw_peer::take_all(const std::function<void(const frame_header&, const_bytes)>& use) {
    while (reader_.ready()) {
        const frame_header header = reader_.header();
        if (header.kind == shm_start_over_kind) {
            reader_.start_over();
            continue;
        }
        const std::size_t here =
            header.bytes <= limits::shm_whole_bytes ? header.bytes : limits::shm_prefix_bytes;
        use(header, reader_.payload(here));
        reader_.consume(here);
    }
}

void shm_raw_peer::ring() {
    const char bell = 0;
    (void)!::send(socket_.get(), &bell, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void shm_raw_peer::wait_until_dropped() {
    std::array<char, 256> bells;
    for (;;) {
        wait_for(socket_.get(), POLLIN | POLLRDHUP);
        if (::recv(socket_.get(), bells.data(), bells.size(), MSG_DONTWAIT) <= 0) return;
    }
}

void send_garbage_over_shm(const std::string& address, std::uint64_t seed) {
    seeded_random dice(seed);
    shm_raw_peer peer(address);
    // The first kinds replace the hello, the others follow one.
    const std::uint64_t kind = seed % 23;
    if (kind >= 5) peer.greet();
    const std::vector<std::byte> bytes = noise(dice, 1 + dice.below(2000));
    const auto small = static_cast<std::uint32_t>(bytes.size());
    switch (kind) {
        case 0:
            peer.send_bytes(text_of(bytes));
            break;
        case 1: {
            shm_hello other = peer.proper();
            other.version = static_cast<std::uint32_t>(dice()) | 1;
            peer.say(other, -1, -1);
            break;
        }
        case 2:
            peer.say(peer.proper(), -1, -1);
            break;
        case 3:
            peer.say(peer.proper(), peer.pair_memory(), peer.socket());
            break;
        case 4:
            peer.say(peer.proper(), peer.socket(), peer.socket());
            break;
        case 5:
            peer.write(unknown_kind(dice), small, bytes);
            break;
        case 6:  // A piece without a start.
            peer.write(shm_piece_kind, small, bytes);
            break;
        case 7:  // A large message, then something other than its pieces.
            begin(peer, frame_kind::unexpected, 100000, dice);
            peer.write(frame_kind::unexpected, small, bytes);
            break;
        case 8:  // More than announced.
            begin(peer, frame_kind::unexpected, 40000, dice);
            for (int i = 0; i < 4; ++i)
                add_piece(peer, 15000, dice);
            break;
        case 9:  // An empty piece, or one over the limit.
            begin(peer, frame_kind::unexpected, 100000, dice);
            peer.write(shm_piece_kind, dice.chance(0.5) ? 0 : 0xffffffffu, {});
            break;
        case 10:  // A message over every limit.
            begin(peer, frame_kind::unexpected, 0xffffffffu, dice);
            break;
        case 11:  // One byte more than announced.
            begin(peer, frame_kind::unexpected, limits::shm_prefix_bytes + 40000, dice);
            add_piece(peer, 16000, dice);
            add_piece(peer, 16000, dice);
            add_piece(peer, 8001, dice);
            break;
        case 12:  // A piece of one byte more than the longest.
            begin(peer, frame_kind::unexpected, 100000, dice);
            add_piece(peer, limits::shm_piece_bytes + 1, dice);
            break;
        case 13:  // A large message inside another.
            begin(peer, frame_kind::unexpected, 100000, dice);
            add_piece(peer, 1 + static_cast<std::uint32_t>(dice.below(16000)), dice);
            begin(peer, frame_kind::expected, 100000, dice);
            break;
        case 14:  // A piece after the last.
            begin(peer, frame_kind::expected, limits::shm_whole_bytes + 1, dice);
            add_piece(peer, limits::shm_piece_bytes, dice);
            add_piece(peer, limits::shm_piece_bytes + 1 - limits::shm_prefix_bytes, dice);
            add_piece(peer, 1, dice);
            break;
        case 15:  // A frame that is never large.
            begin(peer, dice.chance(0.5) ? frame_kind::get : frame_kind::rma_done, 100000, dice);
            break;
        case 19:
            begin(peer, dice.chance(0.5) ? frame_kind::fetch_add : frame_kind::fetched, 100000,
                  dice);
            break;
        case 20:  // A notified put without its notice.
            peer.write(frame_kind::put_notify, 63, const_bytes(bytes).first(1));
            break;
        case 21:
            peer.write(dice.chance(0.5) ? frame_kind::compare_swap : frame_kind::fetched, 60,
                       const_bytes(bytes).first(1));
            break;
        case 16:  // A put that states another number of bytes than follow it.
            begin(peer, frame_kind::put, 100000, dice);
            break;
        case 17:  // Unrequested answers.
            peer.write(frame_kind::rma_done, 3, const_bytes(bytes).first(1));
            peer.write(frame_kind::rma_done, 3, const_bytes(bytes).first(1));
            break;
        case 18:
            peer.write(frame_kind::put, 1, const_bytes(bytes).first(1));
            break;
        default:
            peer.write(frame_kind::get, 0, {});
            break;
    }
    peer.ring();
    peer.wait_until_dropped();
}

}  // namespace amalgam::detail
