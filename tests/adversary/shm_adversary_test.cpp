// A peer over shared memory that first speaks the protocol mostly right, and then writes to any
// word that it can write, while it is read: of the pair, of its registration table, of its blocks.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/fabric/transport.hpp>

#include "conformance/child_process.hpp"
#include "conformance/pattern.hpp"
#include "fabric/frames/rma_frames.hpp"
#include "fabric/limits.hpp"
#include "fabric/port/port_testing.hpp"
#include "fabric/transports/shm/memory/mapping.hpp"
#include "fabric/transports/shm/raw_peer.hpp"
#include "seeded_runs.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;
using conformance::channel;
using conformance::child_process;
using conformance::fill_pattern;
using conformance::is_pattern;
using testing_support::recorded;

constexpr std::size_t shown_bytes = 64 * shm_page_bytes;
constexpr std::size_t shown_regions = 4;
/// Tag of the peer's first message, which identifies it.
constexpr std::uint64_t its_name_tag = 7770;
constexpr std::uint64_t echo_tag = 7771;

/// Key of slot `index` of the peer: known to both sides.
remote_key shown_key(std::uint64_t incarnation, std::size_t index) {
    remote_key key;
    key.secret = 77 + index;
    key.region = std::uint64_t{1} << 32 | index;
    key.incarnation = incarnation;
    key.bytes = 2 * shown_bytes;
    key.rights = access::read_write;
    return key;
}

// ---- the peer, in its own process

class vandal {
public:
    vandal(const std::string& address, const remote_key& key, std::uint64_t seed)
        : dice_(seed),
          key_(key),
          peer_(address),
          registrations_(shm_mapping::of(peer_.registrations_memory(), 0,
                                         shm_registrations_layout::bytes, true)),
          pair_(shm_mapping::of(peer_.pair_memory(), 0, shm_pair_layout::bytes, true)),
          private_(2 * shown_bytes) {
        if (!registrations_ || !pair_) throw std::runtime_error("no mapping");
        show_blocks();
        show_regions();
    }

    std::uint64_t incarnation() const { return peer_.proper().incarnation; }

    /// Mostly right for a while, then wrong.
    void run() {
        peer_.greet();
        write(frame_kind::unexpected, 0, {}, its_name_tag);
        const std::size_t steps = 20 + dice_.below(300);
        // One in three does everything right, except that its blocks come and go while in use.
        const bool moves_blocks = dice_.chance(0.33);
        const std::size_t wrong_from = moves_blocks ? steps : dice_.below(steps);
        std::thread scribbler;
        if (moves_blocks) scribbler = std::thread([this, seed = dice_()] { move_blocks(seed); });
        for (std::size_t i = 0; i < steps && still_there(peer_.socket()); ++i) {
            if (i == wrong_from && dice_.chance(0.7))
                scribbler = std::thread([this, seed = dice_()] { scribble(seed); });
            step(i >= wrong_from);
            if (dice_.chance(0.3)) std::this_thread::yield();
        }
        stop_ = true;
        if (scribbler.joinable()) scribbler.join();
    }

private:
    void show_blocks() {
        auto& all = reinterpret_cast<shm_registrations_layout*>(registrations_.data())->blocks;
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            fds_[i] = make_shm_memory(shown_bytes).value();
            blocks_[i] = shm_mapping::of(fds_[i].get(), 0, shown_bytes, true);
            struct stat facts {};
            ::fstat(fds_[i].get(), &facts);
            auto& word = all[i].word;
            word[shm_block_slot::address] = reinterpret_cast<std::uint64_t>(blocks_[i].data());
            word[shm_block_slot::length] = shown_bytes;
            word[shm_block_slot::descriptor] = static_cast<std::uint64_t>(fds_[i].get());
            word[shm_block_slot::device] = facts.st_dev;
            word[shm_block_slot::inode] = facts.st_ino;
            word[shm_block_slot::version] = 2;
        }
    }
    void show_region(std::size_t index, std::array<mutable_bytes, 2> parts, std::uint64_t blocks) {
        const remote_key key = shown_key(0, index);
        auto& word =
            reinterpret_cast<shm_registrations_layout*>(registrations_.data())->slots[index].word;
        word[shm_region_slot::region] = key.region;
        word[shm_region_slot::secret] = key.secret;
        word[shm_region_slot::length] = key.bytes;
        word[shm_region_slot::shape] = static_cast<std::uint64_t>(key.rights) | parts.size() << 8;
        word[shm_region_slot::blocks] = blocks;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            word[shm_region_slot::segments + 2 * i] =
                reinterpret_cast<std::uint64_t>(parts[i].data());
            word[shm_region_slot::segments + 2 * i + 1] = parts[i].size();
        }
        word[shm_region_slot::version] = 2;
    }
    void show_regions() {
        const mutable_bytes own(private_);
        const mutable_bytes one(blocks_[0].data(), shown_bytes),
            two(blocks_[1].data(), shown_bytes);
        show_region(0, {own.first(shown_bytes), own.subspan(shown_bytes)}, 0);
        show_region(1, {one, two}, 1 | 2 << shm_region_slot::block_bits);
        show_region(2, {two, own.first(shown_bytes)}, 2);
        auto* const nowhere = reinterpret_cast<std::byte*>(dice_());
        show_region(3, {one, {nowhere, shown_bytes}}, 1 | 1 << shm_region_slot::block_bits);
    }

    bool write(frame_kind kind, std::size_t claimed, const_bytes payload, std::uint64_t tag = 0) {
        const bool done = peer_.try_write(kind, static_cast<std::uint32_t>(claimed), payload, tag);
        peer_.ring();
        return done;
    }
    void request(frame_kind kind, std::size_t bytes) {
        rma_request ask{key_, dice_.below(100), bytes};
        if (dice_.chance(0.1)) ask.offset = dice_();
        if (dice_.chance(0.1)) ask.key.secret ^= 1;
        std::vector<std::byte> raw(rma_request_bytes);
        write_request(raw.data(), ask);
        if (kind == frame_kind::put) raw.resize(raw.size() + bytes, std::byte{9});
        if (kind == frame_kind::put_notify) raw.resize(rma_notify_bytes + bytes, std::byte{9});
        if (kind == frame_kind::fetch_add) {
            raw.resize(rma_fetch_add_bytes, std::byte{1});
        }
        write(kind, raw.size(), raw, dice_.below(4));
    }
    /// A large message in pieces of any lengths. If it is to be wrong, one piece is too long, or
    /// something else follows, or nothing.
    void send_large(bool wrong) {
        const const_bytes own(private_);
        const frame_kind kind = dice_.chance(0.5) ? frame_kind::unexpected : frame_kind::expected;
        std::size_t left = limits::shm_whole_bytes + 1 + dice_.below(2 * limits::shm_ring_bytes);
        if (!write(kind, left, own.first(limits::shm_prefix_bytes), dice_.below(4))) return;
        left -= limits::shm_prefix_bytes;
        for (int tries = 0; left > 0 && tries < 1000; ++tries) {
            if (!still_there(peer_.socket())) return;
            const bool now_wrong = wrong && dice_.chance(0.05);
            if (now_wrong && dice_.chance(0.3)) return;
            const std::size_t most = std::min(left, limits::shm_piece_bytes);
            const std::size_t some = now_wrong ? most + 1 : 1 + dice_.below(most);
            const frame_kind as = now_wrong && dice_.chance(0.5) ? kind : shm_piece_kind;
            if (write(as, some, own.first(some)))
                left -= std::min(left, some);
            else
                std::this_thread::yield();
            peer_.take_all();
        }
    }
    void step(bool wrong) {
        const const_bytes own(private_);
        switch (dice_.below(wrong ? 14 : 9)) {
            case 0:
            case 1:
                write(frame_kind::unexpected, 40, own.first(40), dice_.below(4));
                break;
            case 2:
                write(frame_kind::expected, 3000, own.first(3000), dice_.below(4));
                break;
            case 3:
            case 4:
                send_large(wrong);
                break;
            case 5:
                request(frame_kind::get, dice_.below(5000));
                break;
            case 6:
                request(frame_kind::put, dice_.below(5000));
                request(dice_.chance(0.5) ? frame_kind::put_notify : frame_kind::fetch_add,
                        dice_.below(3000));
                break;
            case 7:
            case 8:
                peer_.take_all();
                break;
            case 9:
                write(static_cast<frame_kind>(dice_.below(20)), dice_.below(40'000),
                      own.first(100));
                break;
            case 10:
                peer_.words().consumed.fetch_add(dice_.below(2 * shm_ring_lines));
                break;
            case 11:
                peer_.words().touched.store(shm_touched::region(key_.region, dice_.chance(0.5)));
                peer_.words().touching.fetch_add(1);
                break;
            default:
                scribble_once(dice_);
                break;
        }
    }

    shm_word& any_word(seeded_random& dice) {
        const auto pick = [&](std::byte* from, std::size_t bytes) -> shm_word& {
            return reinterpret_cast<shm_word*>(from)[dice.below(bytes / sizeof(shm_word))];
        };
        auto& registrations = *reinterpret_cast<shm_registrations_layout*>(registrations_.data());
        switch (dice.below(10)) {
            case 0:
            case 1:
            case 2:
                return pick(pair_.data(), sizeof(shm_side));  // Our own.
            case 3:
                return pick(pair_.data() + sizeof(shm_side), sizeof(shm_side));
            case 4:  // Where records are right now.
                return pick(pair_.data() + shm_pair_layout::ring_to_acceptor, 128 * shm_line_bytes);
            case 5:
                return pick(pair_.data(), shm_pair_layout::bytes);
            case 6:
                return dice.chance(0.5) ? registrations.blocks_freed : registrations.sleeping;
            case 7:
                return registrations.blocks[dice.below(2)].word[dice.below(shm_block_slot::words)];
            default:
                return registrations.slots[dice.below(shown_regions)]
                    .word[dice.below(shm_region_slot::words)];
        }
    }
    void scribble_once(seeded_random& dice) {
        shm_word& word = any_word(dice);
        const std::uint64_t now = word.load();
        const std::uint64_t values[] = {0,
                                        1,
                                        2,
                                        ~0ull,
                                        now + 1,
                                        now - 1,
                                        now + 2,
                                        dice(),
                                        now + (1ull << 63),
                                        now ^ (1ull << dice.below(64))};
        word.store(values[dice.below(std::size(values))]);
        // Often just for a moment.
        if (dice.chance(0.5)) word.store(now);
    }
    void move_blocks(std::uint64_t seed) {
        seeded_random dice(seed);
        auto& registrations = *reinterpret_cast<shm_registrations_layout*>(registrations_.data());
        while (!stop_) {
            registrations.blocks[dice.below(2)].word[shm_block_slot::version].fetch_add(2);
            registrations.blocks_freed.fetch_add(1);
            for (std::uint64_t pause = dice.below(5000); pause > 0 && !stop_; --pause) {
            }
        }
    }
    void scribble(std::uint64_t seed) {
        seeded_random dice(seed);
        while (!stop_) {
            scribble_once(dice);
            if (dice.chance(0.02)) std::this_thread::yield();
        }
    }

    seeded_random dice_;
    const remote_key key_;  // Of the port's memory.
    shm_raw_peer peer_;
    shm_mapping registrations_, pair_;
    std::array<unique_fd, 2> fds_;
    std::array<shm_mapping, 2> blocks_;
    std::vector<std::byte> private_;
    std::atomic<bool> stop_{false};
};

/// A line of words: a seed, an address, and the key of memory there.
int be_vandals(channel& parent) {
    for (;;) {
        const std::uint64_t seed = std::stoull(parent.hear());
        if (seed == 0) return 0;
        const std::string address = parent.hear();
        std::array<std::byte, remote_key::wire_bytes> wire;
        const std::string text = parent.hear();
        std::copy_n(reinterpret_cast<const std::byte*>(text.data()), wire.size(), wire.begin());
        try {
            vandal one(address, remote_key::decode(wire), seed);
            parent.say(std::to_string(one.incarnation()));
            one.run();
        } catch (const std::runtime_error&) {
            // Nobody is left, or its ring makes no sense any more: goal reached.
        }
        parent.say("done");
    }
}

// ---- the attacked port, and a good client of it

/// An operation of the port on its peer: memory between two guards, and its completion.
struct deed {
    static constexpr std::size_t guard = 4096;

    explicit deed(std::size_t bytes) : memory(bytes + 2 * guard, std::byte{0x5a}) {}
    mutable_bytes bytes() {
        return mutable_bytes(memory).subspan(guard, memory.size() - 2 * guard);
    }
    bool is_guarded() const {
        const auto right = [](std::byte one) { return one == std::byte{0x5a}; };
        return std::all_of(memory.begin(), memory.begin() + guard, right) &&
               std::all_of(memory.end() - guard, memory.end(), right);
    }

    std::vector<std::byte> memory;
    const_bytes out;
    mutable_bytes in;
    recorded done;
    std::uint64_t old = 0;
    bool pending = false;
};

struct server final : message_sink {
    explicit server(std::unique_ptr<port> opened) : end(std::move(opened)) { end->set_sink(this); }
    void on_message(message& arrived) noexcept override {
        if (arrived.tag() == its_name_tag) stranger = arrived.from();
        if (arrived.tag() != echo_tag) return;
        answers.emplace_back(arrived.bytes().size());
        deed& answer = answers.back();
        std::copy_n(arrived.bytes().data(), arrived.bytes().size(), answer.bytes().data());
        answer.out = answer.bytes();
        EXPECT_NE(end->post_send(arrived.from(), echo_tag, gather(&answer.out, 1), answer.done),
                  posted::full);
    }
    void on_peer_down(peer_id who, status) noexcept override { lost = who; }

    std::unique_ptr<port> end;
    peer_id stranger, lost;
    std::deque<deed> answers;
};

struct client final : message_sink {
    explicit client(std::unique_ptr<port> opened) : end(std::move(opened)) { end->set_sink(this); }
    void on_message(message& arrived) noexcept override {
        echo.assign(arrived.bytes().begin(), arrived.bytes().end());
        ++echoes;
    }
    void on_peer_down(peer_id, status) noexcept override { ++losses; }

    std::unique_ptr<port> end;
    std::vector<std::byte> echo;
    int echoes = 0;
    int losses = 0;
};

std::unique_ptr<port> open(std::chrono::milliseconds limit) {
    port_options options;
    options.silence_limit = limit;
    return transport_registry::native().open("shm://", options).value();
}

std::size_t descriptors_and_mappings() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator("/proc/self/fd"))
        ++count;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        count += line.find("memfd:amalgam-shm") != line.npos;
    return count;
}

class shm_adversary : public testing::Test {
protected:
    shm_adversary() {
        default_logger().set_sink([](const log_record&) {});
    }
    ~shm_adversary() override { default_logger().set_sink({}); }

    void move() {
        if (server_.end->progress() + client_.end->progress() == 0) std::this_thread::yield();
    }

    /// The good client gets answers, and its transfers move their bytes.
    void expect_served(std::uint64_t seed) {
        const std::size_t bytes = 1 + seed % 40'000;
        deed message(bytes), written(bytes), read(bytes);
        fill_pattern(message.bytes(), seed);
        message.out = message.bytes();
        const int before = client_.echoes;
        while (client_.end->post_send(to_server_, echo_tag, gather(&message.out, 1),
                                      message.done) == posted::full)
            move();
        while (client_.echoes == before)
            move();
        EXPECT_EQ(client_.echo.size(), bytes);
        EXPECT_TRUE(is_pattern(client_.echo, seed));
        fill_pattern(written.bytes(), seed + 1);
        written.out = written.bytes();
        read.in = read.bytes();
        const auto finish = [&](posted how, deed& one) {
            while (how == posted::pending && one.done.runs == 0)
                move();
            EXPECT_TRUE(how == posted::done || one.done.what.ok());
        };
        finish(client_.end->post_put(to_server_, gather(&written.out, 1), good_.key(), 0,
                                     written.done),
               written);
        finish(client_.end->post_get(to_server_, scatter(&read.in, 1), good_.key(), 0, read.done),
               read);
        EXPECT_TRUE(is_pattern(read.bytes(), seed + 1));
        EXPECT_EQ(client_.losses, 0);
    }

    /// Any operation of a port on a peer.
    void do_something(seeded_random& dice, std::uint64_t incarnation) {
        constexpr std::size_t sizes[] = {8, 1000, 30'000, 200'000};
        deed& one = deeds_.emplace_back(sizes[dice.below(std::size(sizes))]);
        one.out = one.in = one.bytes();
        const std::size_t which = dice.chance(0.5) ? 1 : dice.below(shown_regions);
        const remote_key key = shown_key(incarnation, which);
        const std::uint64_t offset = dice.below(2 * shown_bytes);
        const peer_id to = server_.stranger;
        posted how = posted::done;
        switch (dice.below(11)) {
            case 8:
                how = server_.end->post_fetch_add(to, key, offset & ~std::uint64_t{7}, 1, &one.old,
                                                  one.done);
                break;
            case 9:
                how = server_.end->post_compare_swap(to, key, offset, 0, 1, &one.old, one.done);
                break;
            case 10:
                how =
                    server_.end->post_put_notify(to, gather(&one.out, 1), key, offset, 5, one.done);
                break;
            case 0:
                how = server_.end->post_send(to, 2, gather(&one.out, 1), one.done);
                break;
            case 1:
                how = server_.end->post_send_expected(to, 2, gather(&one.out, 1), one.done);
                break;
            case 2:
                how = server_.end->post_receive(to, dice.below(4), one.in, one.done);
                break;
            case 3:
            case 4:
                how = server_.end->post_put(to, gather(&one.out, 1), key, offset, one.done);
                break;
            default:
                how = server_.end->post_get(to, scatter(&one.in, 1), key, offset, one.done);
                break;
        }
        one.pending = how == posted::pending;
        if (one.pending && dice.chance(0.2)) server_.end->cancel(one.done);
    }

    void run(std::uint64_t seed) {
        seeded_random dice(seed);
        shown_ = server_.end->open_region(memory_, access::read_write).value();
        const auto wire = shown_.key().encode();
        vandals_.line().say(std::to_string(seed));
        vandals_.line().say(server_.end->address());
        vandals_.line().say({reinterpret_cast<const char*>(wire.data()), wire.size()});
        server_.stranger = server_.lost = {};
        std::uint64_t incarnation = 0;
        for (std::string heard; heard != "done";) {
            move();
            if (const auto word = vandals_.line().overhear()) {
                heard = *word;
                if (heard != "done") incarnation = std::stoull(heard);
            }
            if (server_.stranger != peer_id{} && deeds_.size() < 200)
                do_something(dice, incarnation);
            if (dice.chance(0.02))
                shown_ = server_.end->open_region(memory_, access::read_write).value();
        }
        if (server_.stranger != peer_id{} && server_.lost != server_.stranger)
            server_.end->close(server_.stranger);
        expect_served(seed);
        shown_ = region();
        while (server_.end->open_operations() > 0)
            move();
        for (const deed& one : deeds_) {
            EXPECT_EQ(one.done.runs, one.pending ? 1 : 0);
            EXPECT_TRUE(one.is_guarded());
        }
        deeds_.clear();
        server_.answers.clear();
    }

    child_process vandals_{&be_vandals};  // First: forked before anything is opened.
    std::vector<std::byte> memory_ = std::vector<std::byte>(10'000);
    server server_{open(200ms)};
    client client_{open(10s)};
    shared_block block_ = server_.end->allocate(100'000).value();
    region good_ = server_.end->open_region(block_.bytes(), access::read_write).value();
    region shown_;
    peer_id to_server_ = client_.end->lookup(server_.end->address()).value();
    std::deque<deed> deeds_;
};

TEST_F(shm_adversary, port_and_its_good_client_outlive_whatever_a_peer_writes) {
    expect_served(1);
    const std::size_t before = descriptors_and_mappings();
    for (const std::uint64_t seed : seeded_runs(60))
        run(seed);
    vandals_.kill();
    // The last of them is dropped when a region closes.
    while (descriptors_and_mappings() > before) {
        shown_ = server_.end->open_region(memory_, access::read_write).value();
        shown_ = region();
        move();
    }
    const port_usage held = server_.end->usage();
    EXPECT_EQ(held.queued_bytes, 0u);
}

}  // namespace
}  // namespace amalgam::detail
