#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "conformance/served.hpp"

namespace amalgam::conformance {
namespace {

constexpr std::uint64_t big = 0xfedc'ba98'7654'3210u;

/// A region of numbers of the port's, in memory of its program or in a block.
struct numbers {
    numbers(node& owner, mutable_bytes memory)
        : at(memory), shown(owner.end().open_region(at, access::read_write).value()) {}
    numbers(node& owner, std::size_t bytes)
        : block(owner.end().allocate(bytes).value()),
          at(block.bytes()),
          shown(owner.end().open_region(at, access::read_write).value()) {}

    std::atomic_ref<std::uint64_t> operator[](std::size_t i) const {
        return std::atomic_ref(reinterpret_cast<std::uint64_t*>(at.data())[i]);
    }
    const remote_key& key() const { return shown.key(); }

    shared_block block;
    mutable_bytes at;
    region shown;
};

#define SKIP_WITHOUT_ATOMICS(at)                       \
    if ((at).end().can().atomics == atomic_mode::none) \
    GTEST_SKIP() << "the plug-in is older than atomic operations"

std::uint64_t& number_in(mutable_bytes old) {
    return *reinterpret_cast<std::uint64_t*>(old.data());
}

void in_each_memory(transport_suite& suite, node& owner,
                    const std::function<void(numbers&)>& what) {
    numbers plain(owner, suite.zeroed(4096)), shared(owner, 4096);
    for (numbers* each : {&plain, &shared}) {
        SCOPED_TRACE(each == &plain ? "in memory of its own" : "in a block");
        what(*each);
    }
}

TEST_P(transport_suite, fetch_add_adds_and_tells_what_was_there) {
    connection over = connected_pair();
    SKIP_WITHOUT_ATOMICS(over.a);
    mutable_bytes old = zeroed(8);
    in_each_memory(*this, over.b, [&](numbers& all) {
        all[3].store(7);
        std::uint64_t expected = 7;
        for (std::uint64_t add : {std::uint64_t{5}, big, ~std::uint64_t{0}, std::uint64_t{0}}) {
            operation& op =
                complete(over.a, request::fetch_add(over.b_at_a, all.key(), 24, add, old));
            ASSERT_EQ(op.code(), errc::ok);
            EXPECT_EQ(op.bytes(), 8u);
            EXPECT_EQ(number_in(old), expected);
            expected += add;
            EXPECT_EQ(all[3].load(), expected);
        }
        EXPECT_EQ(all[2].load(), 0u);
        EXPECT_EQ(all[4].load(), 0u);
    });
}

TEST_P(transport_suite, compare_swap_replaces_only_what_was_expected) {
    connection over = connected_pair();
    SKIP_WITHOUT_ATOMICS(over.a);
    mutable_bytes old = zeroed(8);
    in_each_memory(*this, over.b, [&](numbers& all) {
        all[1].store(big);
        auto swap = [&](std::uint64_t expected, std::uint64_t desired) {
            EXPECT_EQ(complete(over.a, request::compare_swap(over.b_at_a, all.key(), 8, expected,
                                                             desired, old))
                          .code(),
                      errc::ok);
            return number_in(old);
        };
        EXPECT_EQ(swap(big + 1, 5), big);
        EXPECT_EQ(all[1].load(), big);
        EXPECT_EQ(swap(big, 5), big);
        EXPECT_EQ(all[1].load(), 5u);
        EXPECT_EQ(swap(5, ~std::uint64_t{0}), 5u);
        EXPECT_EQ(all[1].load(), ~std::uint64_t{0});
    });
}

TEST_P(transport_suite, what_a_number_was_need_not_be_wanted) {
    connection over = connected_pair();
    SKIP_WITHOUT_ATOMICS(over.a);
    in_each_memory(*this, over.b, [&](numbers& all) {
        request add = request::fetch_add(over.b_at_a, all.key(), 0, 5, {});
        request swap = request::compare_swap(over.b_at_a, all.key(), 0, 5, 6, {});
        add.into.clear();
        swap.into.clear();
        EXPECT_EQ(complete(over.a, add).code(), errc::ok);
        EXPECT_EQ(complete(over.a, swap).code(), errc::ok);
        EXPECT_EQ(all[0].load(), 6u);
    });
}

TEST_P(transport_suite, numbers_of_several_peers_and_of_the_owner_add_up) {
    node& owner = open();
    SKIP_WITHOUT_ATOMICS(owner);
    constexpr std::size_t peers = 4;
    constexpr std::uint64_t each = 150;
    std::vector<connection> all;
    for (std::size_t i = 0; i < peers; ++i)
        all.push_back(connect(open(), owner));
    in_each_memory(*this, owner, [&](numbers& sum) {
        mutable_bytes olds = zeroed(8 * peers * each);
        std::vector<operation*> ops;
        for (std::uint64_t n = 0; n < each; ++n) {
            for (std::size_t i = 0; i < peers; ++i)
                ops.push_back(
                    &start(all[i].a, request::fetch_add(all[i].b_at_a, sum.key(), 8, 1,
                                                        olds.subspan(8 * (n * peers + i), 8))));
            sum[1].fetch_add(1000);
        }
        finish(ops);
        EXPECT_EQ(sum[1].load(), peers * each + 1000 * each);
        std::set<std::uint64_t> seen;
        for (std::size_t i = 0; i < peers * each; ++i) {
            ASSERT_EQ(ops[i]->code(), errc::ok);
            EXPECT_TRUE(seen.insert(number_in(olds.subspan(8 * i, 8))).second)
                << "two saw the same";
        }
    });
}

TEST_P(transport_suite, numbers_of_ports_in_threads_add_up_with_their_owners) {
    connection over = connected_pair();
    SKIP_WITHOUT_ATOMICS(over.a);
    if (over.a.driven()) GTEST_SKIP() << "its ports are driven in virtual time";
    const std::uint64_t each = is_brief() ? 2000 : 20000;
    in_each_memory(*this, over.b, [&](numbers& sum) {
        std::atomic<bool> is_over = false;
        std::thread adder([&] {
            for (std::uint64_t i = 0; i < each; ++i)
                sum[0].fetch_add(1);
        });
        std::thread owner([&] {
            while (!is_over)
                over.b.progress();
        });
        std::vector<operation*> ops;
        for (std::uint64_t i = 0; i < each; ++i) {
            operation& op =
                over.a.try_post(request::fetch_add(over.b_at_a, sum.key(), 0, 1, zeroed(8)));
            while (op.refused() && op.post() == posted::full)
                over.a.progress();
            ops.push_back(&op);
            if (i % 64 == 0) over.a.progress();
        }
        for (operation* op : ops) {
            while (!op->over())
                over.a.progress();
            EXPECT_EQ(op->code(), errc::ok);
        }
        is_over = true;
        adder.join();
        owner.join();
        EXPECT_EQ(sum[0].load(), 2 * each);
    });
}

// The number that the lock guards is read and written by ordinary gets and puts.
TEST_P(transport_suite, compare_swap_serves_as_a_lock) {
    node& owner = open();
    SKIP_WITHOUT_ATOMICS(owner);
    constexpr std::size_t peers = 3, each = 30;
    struct worker {
        connection over;
        mutable_bytes old, number;
        operation* op = nullptr;
        int step = 0;
        std::size_t done = 0;
    };
    std::vector<worker> all;
    for (std::size_t i = 0; i < peers; ++i)
        all.push_back({connect(open(), owner), zeroed(8), zeroed(8)});
    in_each_memory(*this, owner, [&](numbers& shared) {
        for (worker& one : all)
            one.step = 0, one.done = 0, one.op = nullptr;
        auto advance = [&](worker& me, std::uint64_t id) {
            if (me.op != nullptr && !me.op->over()) return;
            if (me.op != nullptr) {
                ASSERT_EQ(me.op->code(), errc::ok);
            }
            node& at = me.over.a;
            const peer_id to = me.over.b_at_a;
            if (me.step == 1 && number_in(me.old) != 0) me.step = 0;  // Somebody else has it.
            if (me.step == 2) ++number_in(me.number);
            if (me.step == 4) {
                EXPECT_EQ(number_in(me.old), id) << "the lock was somebody else's";
                me.step = 0;
                ++me.done;
                me.op = nullptr;
                if (me.done == each) return;
            }
            switch (me.step++) {
                case 0:
                    me.op = &start(at, request::compare_swap(to, shared.key(), 0, 0, id, me.old));
                    break;
                case 1:
                    me.op = &start(at, request::get(to, {me.number}, shared.key(), 8));
                    break;
                case 2:
                    me.op = &start(at, request::put(to, {me.number}, shared.key(), 8));
                    break;
                case 3:
                    me.op = &start(at, request::compare_swap(to, shared.key(), 0, id, 0, me.old));
                    break;
            }
        };
        until("everybody had the lock often enough", [&] {
            std::size_t done = 0;
            for (std::size_t i = 0; i < peers; ++i) {
                if (all[i].done < each) advance(all[i], i + 1);
                done += all[i].done;
            }
            return done == peers * each;
        });
        EXPECT_EQ(shared[1].load(), peers * each);
        EXPECT_EQ(shared[0].load(), 0u);
    });
}

TEST_P(transport_suite, number_that_is_not_allowed_is_denied_and_one_that_is_not_whole_invalid) {
    connection over = connected_pair();
    SKIP_WITHOUT_ATOMICS(over.a);
    mutable_bytes old = zeroed(8);
    in_each_memory(*this, over.b, [&](numbers& all) {
        std::fill(all.at.begin(), all.at.end(), std::byte{0x5a});
        port& owner = over.b.end();
        region readable = owner.open_region(all.at, access::read).value();
        region writable = owner.open_region(all.at, access::write).value();
        region shifted = owner.open_region(all.at.subspan(4), access::read_write).value();
        const mutable_bytes parts[] = {all.at.subspan(16, 4), all.at.subspan(20, 12),
                                       all.at.subspan(64, 0), all.at.subspan(64, 16)};
        region split = owner.open_region(scatter(parts), access::read_write).value();
        const remote_key closed = owner.open_region(all.at, access::read_write).value().key();
        remote_key forged = all.key();
        forged.secret ^= 1;
        remote_key widened = readable.key();
        widened.rights = access::read_write;
        struct refusal {
            const char* why;
            remote_key key;
            std::uint64_t offset;
            errc how;
        };
        const refusal refusals[] = {
            {"reads only", readable.key(), 0, errc::denied},
            {"writes only", writable.key(), 0, errc::denied},
            {"claims more rights", widened, 0, errc::denied},
            {"forged", forged, 0, errc::denied},
            {"closed", closed, 0, errc::denied},
            {"past the end", all.key(), 4089, errc::denied},
            {"at the end", all.key(), 4096, errc::denied},
            {"far past the end", all.key(), ~std::uint64_t{0} - 7, errc::denied},
            {"unaligned", all.key(), 9, errc::invalid},
            {"unaligned by 4", all.key(), 12, errc::invalid},
            {"aligned in a region that is not", shifted.key(), 8, errc::invalid},
            {"in two segments", split.key(), 0, errc::invalid},
        };
        for (const refusal& each : refusals) {
            SCOPED_TRACE(each.why);
            number_in(old) = 1;
            for (bool adds : {true, false}) {
                operation& op = complete(
                    over.a, adds ? request::fetch_add(over.b_at_a, each.key, each.offset, 1, old)
                                 : request::compare_swap(over.b_at_a, each.key, each.offset,
                                                         0x5a5a'5a5a'5a5a'5a5au, 1, old));
                EXPECT_EQ(op.how(), posted::pending);
                EXPECT_EQ(op.code(), each.how);
                EXPECT_EQ(number_in(old), 1u);
            }
            EXPECT_TRUE(is_all(all.at, std::byte{0x5a}));
        }
        // The same memory, where it is whole and aligned.
        EXPECT_EQ(
            complete(over.a, request::fetch_add(over.b_at_a, shifted.key(), 4, 1, old)).code(),
            errc::ok);
        EXPECT_EQ(complete(over.a, request::fetch_add(over.b_at_a, split.key(), 8, 1, old)).code(),
                  errc::ok);
        EXPECT_EQ(complete(over.a, request::fetch_add(over.b_at_a, split.key(), 16, 1, old)).code(),
                  errc::ok);
    });
}

TEST_P(transport_suite, many_atomic_operations_at_once_each_complete_once) {
    connection over = connected_pair();
    SKIP_WITHOUT_ATOMICS(over.a);
    const const_bytes filler = patterned(1 << 20, 9);
    in_each_memory(*this, over.b, [&](numbers& all) {
        constexpr std::size_t count = 1000;
        mutable_bytes olds = zeroed(8 * count);
        std::vector<operation*> ops;
        for (std::size_t i = 0; i < count; ++i) {
            // Behind a full connection, too.
            if (i % 100 == 0) ops.push_back(&start(over.a, request::send(over.b_at_a, 1, filler)));
            ops.push_back(&start(over.a, request::fetch_add(over.b_at_a, all.key(), 8 * (i % 512),
                                                            i, olds.subspan(8 * i, 8))));
        }
        finish(ops);
        for (operation* op : ops)
            EXPECT_EQ(op->code(), errc::ok);
        for (std::size_t i = 0; i < 512; ++i) {
            EXPECT_EQ(all[i].load(), i + (i + 512 < count ? i + 512 : 0));
            EXPECT_EQ(number_in(olds.subspan(8 * i, 8)), 0u);
        }
    });
}

// The frames of these are cut in every place where a transport cuts what it sends.
TEST_P(transport_suite, compare_swaps_between_messages_of_every_length_arrive_whole) {
    connection over = connected_pair();
    SKIP_WITHOUT_ATOMICS(over.a);
    constexpr std::uint64_t count = 3000;
    numbers all(over.b, zeroed(4096));
    mutable_bytes olds = zeroed(8 * count);
    const const_bytes filler = patterned(1000, 9);
    std::vector<operation*> ops;
    for (std::uint64_t i = 0; i < count; ++i) {
        if (i % 3 == 0)
            ops.push_back(&start(over.a, request::send(over.b_at_a, 1, filler.first(i % 999))));
        ops.push_back(&start(over.a, request::compare_swap(over.b_at_a, all.key(), 8, i, i + 1,
                                                           olds.subspan(8 * i, 8))));
    }
    finish(ops);
    for (operation* op : ops)
        ASSERT_EQ(op->code(), errc::ok);
    EXPECT_EQ(all[1].load(), count);
    for (std::uint64_t i = 0; i < count; ++i)
        ASSERT_EQ(number_in(olds.subspan(8 * i, 8)), i);
}

TEST_P(transport_suite, number_whose_region_closed_is_its_owners_again) {
    connection over = connected_pair();
    SKIP_WITHOUT_ATOMICS(over.a);
    for (int after : {0, 1, 2, 5}) {
        in_each_memory(*this, over.b, [&](numbers& all) {
            std::vector<operation*> ops;
            for (int i = 0; i < 100; ++i)
                ops.push_back(
                    &start(over.a, request::fetch_add(over.b_at_a, all.key(), 0, 1, zeroed(8))));
            for (int i = 0; i < after; ++i) {
                over.a.progress(1);
                over.b.progress(1);
            }
            all.shown = region();
            const std::uint64_t then = all[0].load();
            finish(ops);
            std::uint64_t happened = 0;
            for (operation* op : ops) {
                EXPECT_TRUE(op->code() == errc::ok || op->code() == errc::denied);
                if (op->code() == errc::ok) ++happened;
            }
            EXPECT_EQ(happened, then);
            EXPECT_EQ(all[0].load(), then);
        });
    }
}

TEST_P(transport_suite, native_atomic_operations_need_no_progress_of_the_target) {
    connection over = connected_pair();
    if (over.a.end().can().atomics != atomic_mode::native)
        GTEST_SKIP() << "the target carries them out here";
    numbers all(over.b, 4096);
    mutable_bytes old = zeroed(8);
    for (std::uint64_t i = 0; i < 100; ++i) {
        operation& op = over.a.try_post(request::fetch_add(over.b_at_a, all.key(), 0, 1, old));
        ASSERT_EQ(op.how(), posted::done);
        EXPECT_EQ(number_in(old), i);
    }
    EXPECT_EQ(all[0].load(), 100u);
}

TEST_P(transport_suite, numbers_of_another_process_add_up_and_end_with_it) {
    if (!between_processes()) GTEST_SKIP() << "its ports do not leave the process";
    child_process& other = spawn([&](channel& parent) { serve(*this, parent, GetParam()); });
    node& here = open();
    SKIP_WITHOUT_ATOMICS(here);
    const served told = served::from_text(hear(other));
    const peer_id peer = reach(*this, here, told.address);
    mutable_bytes old = zeroed(8);
    std::vector<operation*> ops;
    for (const remote_key& key : {told.key, told.block_key}) {
        for (std::uint64_t i = 0; i < 50; ++i) {
            ASSERT_EQ(complete(here, request::fetch_add(peer, key, 800, 2, old)).code(), errc::ok);
            EXPECT_EQ(number_in(old), 2 * i);
        }
    }
    for (int i = 0; i < 20; ++i)
        ops.push_back(&start(here, request::fetch_add(peer, told.key, 0, 1, zeroed(8))));
    other.kill();
    finish(ops);
    for (operation* op : ops)
        EXPECT_TRUE(op->code() == errc::ok || op->code() == errc::disconnected);
    until("the word of the loss", [&] { return here.has_lost(peer); });
    for (const remote_key& key : {told.key, told.block_key})
        EXPECT_EQ(complete(here, request::fetch_add(peer, key, 0, 1, old)).code(),
                  errc::disconnected);
}

}  // namespace
}  // namespace amalgam::conformance
