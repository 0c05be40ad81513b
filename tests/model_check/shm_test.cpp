// fabric, shm: the ring of lines with the sleep of its reader, and the table of regions with the
// copies of peers.
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/transports/shm/memory/registrations.hpp"
#include "fabric/transports/shm/ring.hpp"
#include "model_check/checker/checker.hpp"

namespace amalgam::model {
namespace {

using namespace detail;

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;
constexpr std::uint64_t lines = 32;  ///< The reader tells its position when so many were read.

struct alignas(64) ring_memory {
    std::array<std::byte, lines * shm_line_bytes> bytes{};
    shm_word consumed{0};
    shm_word sleeping{0};
};

/// Both ends of one ring, as two processes have them.
struct both_ends {
    explicit both_ends(bool fenced) : writer(place()), reader(place()) {
        writer.set_fenced(fenced);
        writer.connect(memory.sleeping, &both_ends::on_changed, this);
        writer.set_open(true);
    }
    shm_ring_place place() {
        memory.consumed.store(1000 * lines);
        return {memory.bytes.data(), lines, 1000 * lines, &memory.consumed};
    }
    bool write(std::uint64_t tag) {
        frame_header frame;
        frame.tag = tag;
        if (!writer.write_short(frame, {})) return false;
        writer.tell_reader();
        return true;
    }
    /// False: nothing is there.
    bool read(std::uint64_t tag) {
        const std::byte* const record = reader.record();
        if (record == nullptr) return false;
        require(shm_ring_reader::tag_of(record) == tag, "a record is missing, or out of order");
        reader.consume_line();
        return true;
    }
    /// As shm_sender's: what is to be done when the reader's word is not as it was.
    static void on_changed(void* self, std::uint64_t now) noexcept {
        auto& me = *static_cast<both_ends*>(self);
        if ((now & shm_registrations_layout::asleep) != 0 && std::exchange(me.rung, now) != now)
            me.bell.strike();
    }
    /// As shm_registrations::sleep() and shm_port::may_sleep().
    void sleep(bool with_barrier) {
        const std::uint64_t number = sleeps += shm_registrations_layout::a_sleep;
        memory.sleeping.exchange(number | shm_registrations_layout::asleep,
                                 std::memory_order_seq_cst);
        if (with_barrier) barrier_in_all();
        if (!reader.ready_at_last()) bell.wait();
        memory.sleeping.exchange(number, std::memory_order_seq_cst);
    }

    ring_memory memory;
    shm_ring_writer writer;
    shm_ring_reader reader;
    wake_up bell;
    std::uint64_t rung = 0, sleeps = 0;
};

struct sleep_of_reader {
    bool fenced = false;   ///< The writer exchanges.
    bool barrier = false;  ///< The reader calls membarrier(2).
};

result of_sleep(sleep_of_reader how,
                const std::function<void(execution&, both_ends&)>& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& ring = run.make<both_ends>(how.fenced);
        run.name(ring.memory.bytes.data(), "line 0");
        run.name(ring.memory.bytes.data() + shm_line_bytes, "line 1");
        run.name(&ring.memory.sleeping, "sleeping");
        if (weaken) weaken(run, ring);
        run.thread([&ring] {
            for (std::uint64_t i = 1; i <= 2; ++i)
                require(ring.write(i), "there is no room");
        });
        run.thread([&ring, how] {
            for (std::uint64_t i = 1; i <= 2;) {
                if (ring.read(i)) {
                    ++i;
                } else {
                    ring.sleep(how.barrier);
                }
            }
        });
    });
}

TEST(shm_ring_model, records_arrive_and_the_reader_does_not_sleep_through_one) {
    for (const sleep_of_reader how : {sleep_of_reader{true, false}, sleep_of_reader{false, true}}) {
        const result found = of_sleep(how);
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
        RecordProperty(how.fenced ? "fenced" : "barrier", static_cast<int>(found.executions));
    }
}

TEST(shm_ring_model, a_sleep_without_barrier_or_exchange_is_found) {
    EXPECT_EQ(of_sleep({false, false}).failure, "all threads wait for ever");
}

TEST(shm_ring_model, weaker_orders_are_found) {
    EXPECT_NE(of_sleep({false, true},
                       [](execution& run, both_ends& ring) {
                           run.weaken_at(ring.memory.bytes.data(), act::store, relaxed);
                       })
                  .failure,
              "");
    EXPECT_EQ(of_sleep({true, false},
                       [](execution& run, both_ends& ring) {
                           run.weaken_at(ring.memory.bytes.data(), act::change, release);
                       })
                  .failure,
              "all threads wait for ever");
    EXPECT_EQ(of_sleep({true, false},
                       [](execution& run, both_ends& ring) {
                           run.weaken(ring.memory.sleeping, act::load, acquire);
                       })
                  .failure,
              "all threads wait for ever");
}

/// A full ring: the writer may write a line again once the reader has told that it was read.
result of_full_ring(bool weaken) {
    return explore([=](execution& run) {
        auto& ring = run.make<both_ends>(false);
        for (std::uint64_t i = 0; i < lines; ++i)
            ring.write(i);
        if (weaken) {
            run.weaken(ring.memory.consumed, act::store, relaxed);
            run.weaken(ring.memory.consumed, act::change, relaxed);
        }
        run.thread([&ring] {
            while (!ring.write(lines))
                yield();
        });
        run.thread([&ring] {
            for (std::uint64_t i = 0; i < lines; ++i)
                require(ring.read(i), "a record is missing");
        });
    });
}

TEST(shm_ring_model, a_line_is_written_again_only_after_it_was_read) {
    const result found = of_full_ring(false);
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(shm_ring_model, a_relaxed_position_of_the_reader_is_found) {
    EXPECT_EQ(of_full_ring(true).failure, "two threads race for plain memory");
}

/// The table of a port, its owner's side and a peer's, in memory of the test.
struct table {
    table() : owner(unique_fd(), mapping()), peer(mapping()) {}
    ~table() {
        owner.memory_.data_ = peer.memory_.data_ = nullptr;
        owner.memory_.bytes_ = peer.memory_.bytes_ = 0;
    }
    shm_mapping mapping() {
        return shm_mapping(reinterpret_cast<std::byte*>(&words), sizeof words);
    }
    /// Only as much of it as is used.
    alignas(shm_page_bytes) shm_registrations_layout words{};
    shm_registrations owner;
    shm_registrations_view peer;
};

remote_key key_of(std::uint64_t generation) {
    remote_key key;
    key.region = generation << 32;
    key.secret = 7 + generation;
    key.bytes = 8;
    key.rights = access::read;
    return key;
}

/// Region 1 is withdrawn and 2 takes its slot, while a peer looks one of them up.
result of_slot(std::uint64_t sought,
               const std::function<void(execution&, table&)>& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& shared = run.make<table>();
        auto& memory = run.make<std::array<std::uint64_t, 2>>();
        const auto publish = [&shared, &memory](std::uint64_t which) {
            mutable_bytes bytes(reinterpret_cast<std::byte*>(&memory[which - 1]), 8);
            shared.owner.publish(key_of(which), {&bytes, 1});
        };
        publish(1);
        if (weaken) weaken(run, shared);
        run.thread([&shared, publish] {
            shared.owner.withdraw(key_of(1));
            publish(2);
        });
        run.thread([&shared, &memory, sought] {
            const shm_found_region found = shared.peer.find(key_of(sought), 0, 8, access::read);
            require(found.what != shm_found_region::kind::refused, "half a region is found");
            if (found.what != shm_found_region::kind::open) return;
            require(found.segment_count == 1 &&
                        found.segments[0].data() ==
                            reinterpret_cast<const std::byte*>(&memory[sought - 1]),
                    "another region is found");
        });
    });
}

TEST(shm_registrations_model, a_peer_finds_a_whole_region_or_none) {
    for (const std::uint64_t sought : {1, 2}) {
        const result found = of_slot(sought);
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
        RecordProperty("executions", static_cast<int>(found.executions));
    }
}

TEST(shm_registrations_model, relaxed_words_of_a_slot_are_found) {
    const auto weaken = [](act what) {
        return [what](execution& run, table& shared) {
            auto& word = shared.words.slots[0].word;
            for (std::size_t i = shm_region_slot::region; i < word.size(); ++i)
                run.weaken(word[i], what, relaxed);
        };
    };
    EXPECT_NE(of_slot(1, weaken(act::store)).failure + of_slot(2, weaken(act::store)).failure, "");
    EXPECT_NE(of_slot(1, weaken(act::load)).failure + of_slot(2, weaken(act::load)).failure, "");
}

/// A peer copies from a region, whose owner withdraws it, waits for who copies, and writes to it.
result of_touch(const std::function<void(execution&, table&, table&)>& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& owner = run.make<table>();
        auto& copier = run.make<table>();
        auto& memory = run.make<std::uint64_t>(1);
        constexpr std::uint64_t token = 5;
        mutable_bytes bytes(reinterpret_cast<std::byte*>(&memory), 8);
        owner.owner.publish(key_of(1), {&bytes, 1});
        run.name(&copier.words.touching, "touching");
        run.name(&owner.words.slots[0].word[0], "version");
        if (weaken) weaken(run, owner, copier);
        run.thread([&] {  // As host_copies::hide().
            require(owner.owner.withdraw(key_of(1)), "it was not published");
            const auto now = copier.peer.current_touch(token);
            if (now.is_of(key_of(1).region)) {
                while (copier.peer.is_touching(now))
                    yield();
            }
            memory = 2;
        });
        run.thread([&] {  // As host_copies::copy().
            copier.owner.touch(shm_touched::region(key_of(1).region, false), token);
            const shm_found_region found = owner.peer.find(key_of(1), 0, 8, access::read);
            if (found.what == shm_found_region::kind::open) require(memory == 1, "a later value");
            copier.owner.let_go();
        });
    });
}

TEST(shm_registrations_model, a_region_is_returned_once_nobody_copies_from_it) {
    const result found = of_touch();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
    RecordProperty("executions", static_cast<int>(found.executions));
}

TEST(shm_registrations_model, weaker_orders_of_a_touch_are_found) {
    EXPECT_NE(of_touch([](execution& run, table&, table& copier) {
                  run.weaken(copier.words.touching, act::change, std::memory_order_acq_rel);
              }).failure,
              "");
    EXPECT_NE(of_touch([](execution& run, table& owner, table&) {
                  run.weaken(owner.words.slots[0].word[0], act::load, acquire);
              }).failure,
              "");
    EXPECT_NE(of_touch([](execution& run, table&, table& copier) {
                  run.weaken(copier.words.touching, act::load, acquire);
              }).failure,
              "");
}

}  // namespace
}  // namespace amalgam::model
