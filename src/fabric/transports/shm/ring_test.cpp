#include "fabric/transports/shm/ring.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "fabric/transports/shm/memory/mapping.hpp"

namespace amalgam::detail {
namespace {

/// A ring with both of its ends and the word between them.
struct ring_of {
    explicit ring_of(std::size_t lines, std::uint64_t origin = random_u64()) {
        const std::size_t bytes = lines * shm_line_bytes;
        memory = shm_mapping::mirrored(make_shm_memory(bytes).value().get(), 0, bytes);
        consumed.store(origin);
        place = {memory.data(), lines, origin, &consumed};
        writer.emplace(place);
        reader.emplace(place);
    }
    bool write(const frame_header& header, const_bytes payload) {
        return writer->write(header, gather(&payload, 1), payload.size());
    }
    /// Handles a record by which the writer returns to line 0, as a reader does.
    bool ready() {
        if (!reader->ready()) return false;
        if (reader->header().kind != shm_start_over_kind) return true;
        reader->start_over();
        ++laps;
        return reader->ready();
    }

    shm_mapping memory;
    shm_word consumed;
    shm_ring_place place;
    std::optional<shm_ring_writer> writer;
    std::optional<shm_ring_reader> reader;
    int laps = 0;
};

frame_header header_of(std::size_t bytes, std::uint64_t tag) {
    frame_header header;
    header.bytes = static_cast<std::uint32_t>(bytes);
    header.tag = tag;
    return header;
}

std::vector<std::byte> bytes_of(std::size_t count, std::uint64_t seed) {
    seeded_random dice(seed);
    std::vector<std::byte> bytes(count);
    for (std::byte& one : bytes)
        one = static_cast<std::byte>(dice());
    return bytes;
}

struct entry {
    frame_header header;
    std::vector<std::byte> bytes;
};

void expect_front(ring_of& ring, std::deque<entry>& model) {
    ASSERT_TRUE(ring.ready());
    const frame_header header = ring.reader->header();
    EXPECT_EQ(header.tag, model.front().header.tag);
    ASSERT_EQ(header.bytes, model.front().bytes.size());
    const const_bytes payload = ring.reader->payload(header.bytes);
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), model.front().bytes.begin()));
    ring.reader->consume(header.bytes);
    model.pop_front();
}

TEST(shm_ring, does_what_a_queue_does_whatever_the_order_of_steps) {
    for (std::size_t lines : {64u, 256u, 4096u}) {
        ring_of ring(lines);
        std::deque<entry> model;
        seeded_random dice(lines);
        const std::size_t most = lines * shm_line_bytes / 8;
        for (int step = 0; step < 20000; ++step) {
            // Phases in which one side is faster, so that the ring runs full and empty.
            const double haste = step / 500 % 2 == 0 ? 0.65 : 0.35;
            if (dice.chance(haste)) {
                const std::size_t size = dice.below(dice.chance(0.7) ? 80 : most);
                entry next{header_of(size, static_cast<std::uint64_t>(step)),
                           bytes_of(size, static_cast<std::uint64_t>(step))};
                if (ring.write(next.header, next.bytes)) model.push_back(std::move(next));
            } else if (model.empty()) {
                EXPECT_FALSE(ring.ready());
            } else {
                expect_front(ring, model);
            }
            ASSERT_FALSE(ring.writer->broken());
            ASSERT_FALSE(testing::Test::HasFailure()) << "step " << step;
        }
        while (!model.empty())
            expect_front(ring, model);
    }
}

TEST(shm_ring, payload_of_every_length_arrives_whole) {
    ring_of ring(shm_ring_lines);
    for (std::size_t size = 0; size <= 3000; ++size) {
        std::deque<entry> model;
        model.push_back({header_of(size, size), bytes_of(size, size)});
        ASSERT_TRUE(ring.write(model.front().header, model.front().bytes));
        expect_front(ring, model);
    }
}

TEST(shm_ring, short_payload_is_copied_whole_and_nothing_beyond_it) {
    ring_of ring(64);
    for (std::size_t size = 0; size <= shm_short_bytes; ++size) {
        const std::vector<std::byte> sent = bytes_of(size, size + 1);
        ASSERT_TRUE(ring.writer->write_short(header_of(size, size), sent));
        ASSERT_TRUE(ring.reader->ready());
        const const_bytes got = ring.reader->payload(size);
        EXPECT_TRUE(std::equal(got.begin(), got.end(), sent.begin())) << size;
        ring.reader->consume(size);
    }
}

TEST(shm_ring, gather_is_one_payload_and_may_go_out_in_parts) {
    ring_of ring(shm_ring_lines);
    const std::vector<std::byte> all = bytes_of(5000, 1);
    const const_bytes whole(all);
    const const_bytes parts[] = {whole.first(1), whole.subspan(1, 0), whole.subspan(1, 2999),
                                 whole.subspan(3000)};
    ASSERT_TRUE(ring.writer->write(header_of(5000, 1), parts, 5000));
    ASSERT_TRUE(ring.ready());
    const const_bytes got = ring.reader->payload(5000);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin()));
    ring.reader->consume(5000);

    segment_cursor at;
    std::size_t done = 0;
    for (std::size_t some : {1u, 63u, 2936u, 2000u}) {
        ASSERT_TRUE(ring.writer->write_some(header_of(some, 2), parts, at, some));
        ASSERT_TRUE(ring.ready());
        const const_bytes piece = ring.reader->payload(some);
        EXPECT_TRUE(std::equal(piece.begin(), piece.end(), all.begin() + static_cast<long>(done)));
        ring.reader->consume(some);
        done += some;
    }
    EXPECT_EQ(done, all.size());
}

TEST(shm_ring, full_ring_takes_nothing_and_goes_on_when_there_is_room) {
    ring_of ring(64);
    const std::vector<std::byte> line = bytes_of(40, 1);
    int taken = 0;
    while (ring.write(header_of(40, 0), line))
        ++taken;
    EXPECT_EQ(taken, 64);
    EXPECT_FALSE(ring.write(header_of(40, 0), line));
    for (int i = 0; i < 64; ++i) {
        ASSERT_TRUE(ring.reader->ready());
        ring.reader->consume(40);
    }
    EXPECT_FALSE(ring.reader->ready());
    EXPECT_TRUE(ring.write(header_of(40, 0), line));
}

TEST(shm_ring, what_earlier_laps_left_is_no_record) {
    // Every payload is full of numbers that headers of this ring have held.
    ring_of ring(64);
    for (std::uint64_t lap = 0; lap < 300; ++lap) {
        std::vector<std::uint64_t> words(64);
        for (std::size_t i = 0; i < words.size(); ++i)
            words[i] = ring.place.origin + lap * 8 - i;
        ASSERT_TRUE(ring.write(header_of(512, lap), as_bytes_of(words)));
        ASSERT_TRUE(ring.reader->ready());
        ring.reader->consume(512);
        ASSERT_FALSE(ring.reader->ready());
    }
}

TEST(shm_ring, end_of_a_payload_makes_no_new_position_of_an_old_one) {
    // The positions of line 5 in the first and third lap differ in their last byte. Between these
    // laps a payload ends in that line, with the last bytes of the later position.
    for (std::size_t spilled = 1; spilled < 8; ++spilled) {
        for (const bool in_parts : {false, true}) {
            ring_of ring(64, 0x1234567890ab0000u);
            std::uint64_t written = 0;
            auto pass_until = [&](std::uint64_t position) {
                for (; written < position; ++written) {
                    ASSERT_TRUE(ring.writer->write_short(header_of(8, 0), as_bytes_of(written)));
                    ring.reader->consume(8);
                }
            };
            pass_until(64 + 4);
            const std::uint64_t later = ring.place.origin + 128 + 5;
            std::vector<std::byte> bytes(40 + spilled);
            std::memcpy(bytes.data() + 40, &later, spilled);
            const const_bytes payload(bytes);
            segment_cursor at;
            const frame_header header = header_of(bytes.size(), 0);
            ASSERT_TRUE(in_parts ? ring.writer->write_some(header, {&payload, 1}, at, bytes.size())
                                 : ring.write(header, payload));
            const const_bytes got = ring.reader->payload(bytes.size());
            EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin()));
            ring.reader->consume(bytes.size());
            written += 2;
            pass_until(128 + 5);
            EXPECT_FALSE(ring.reader->ready()) << spilled;
        }
    }
}

TEST(shm_ring, positions_may_pass_the_end_of_their_numbers) {
    ring_of ring(64, ~std::uint64_t{0} - 100);
    std::deque<entry> model;
    for (std::uint64_t i = 0; i < 500; ++i) {
        model.push_back({header_of(i % 200, i), bytes_of(i % 200, i)});
        ASSERT_TRUE(ring.write(model.front().header, model.front().bytes));
        expect_front(ring, model);
    }
}

TEST(shm_ring, reader_that_keeps_up_sees_few_lines_again_and_again) {
    ring_of ring(shm_ring_lines, 0);
    const std::byte* furthest = ring.place.lines;
    for (std::uint64_t i = 0; i < 10000; ++i) {
        ASSERT_TRUE(ring.write(header_of(8, i), as_bytes_of(i)));
        ASSERT_TRUE(ring.ready());
        furthest = std::max(furthest, ring.reader->payload(8).data());
        ring.reader->consume(8);
    }
    EXPECT_GT(ring.laps, 50);
    EXPECT_LT(furthest - ring.place.lines, 4 * 128 * 64);
}

TEST(shm_ring, reader_that_falls_behind_leaves_all_of_the_ring_to_the_writer) {
    ring_of ring(shm_ring_lines, 0);
    std::size_t taken = 0;
    while (ring.writer->write_short(header_of(8, taken), as_bytes_of(taken)))
        ++taken;
    EXPECT_EQ(taken, shm_ring_lines);
}

TEST(shm_ring, reader_that_claims_what_was_never_written_is_found_out) {
    for (std::uint64_t claim : {65ull, 1ull << 40, ~0ull}) {
        ring_of ring(64);
        const std::vector<std::byte> line = bytes_of(40, 1);
        while (ring.write(header_of(40, 0), line)) {
        }
        ring.consumed.store(ring.place.origin + claim);
        EXPECT_FALSE(ring.write(header_of(40, 0), line));
        EXPECT_TRUE(ring.writer->broken()) << claim;
    }
}

TEST(shm_ring, sleeping_writer_is_woken_once_per_quarter) {
    ring_of ring(64, 0);
    int woken = 0;
    for (int round = 0; round < 4; ++round) {
        for (std::uint64_t i = 0; i < 64; ++i)
            ASSERT_TRUE(ring.writer->write_short(header_of(8, i), as_bytes_of(i)));
        for (int i = 0; i < 64; ++i)
            woken += ring.reader->consume(8) ? 1 : 0;
    }
    EXPECT_GE(woken, 4);
    EXPECT_LE(woken, 16);
}

TEST(shm_ring, two_threads_lose_and_double_nothing) {
    ring_of ring(256);
    constexpr std::uint64_t count = 60000;
    std::thread far([&] {
        for (std::uint64_t next = 0; next < count;) {
            if (!ring.ready()) {
                std::this_thread::yield();
                continue;
            }
            const frame_header header = ring.reader->header();
            ASSERT_EQ(header.tag, next);
            const const_bytes payload = ring.reader->payload(header.bytes);
            for (std::byte one : payload)
                ASSERT_EQ(one, static_cast<std::byte>(next));
            ring.reader->consume(header.bytes);
            ++next;
        }
    });
    std::vector<std::byte> bytes(1500);
    for (std::uint64_t next = 0; next < count;) {
        const std::size_t size = next * 7 % 1500;
        std::fill_n(bytes.begin(), size, static_cast<std::byte>(next));
        if (ring.write(header_of(size, next), const_bytes(bytes).first(size)))
            ++next;
        else
            std::this_thread::yield();
    }
    far.join();
}

// For ThreadSanitizer, to which two mappings of a ring are two memories: what the writer did before
// a record is ordered before what the reader does after it, and the other way around with room.
TEST(shm_ring, orders_what_threads_do_beside_it_where_each_end_has_its_own_mapping) {
    constexpr std::size_t lines = 256, ring_bytes = lines * shm_line_bytes;
    const unique_fd memory = make_shm_memory(ring_bytes + sizeof(shm_word)).value();
    const auto map = [&](std::size_t from, std::size_t bytes) {
        return shm_mapping::mirrored(memory.get(), from, bytes);
    };
    const shm_mapping written = map(0, ring_bytes), read = map(0, ring_bytes);
    const shm_mapping words = shm_mapping::of(memory.get(), ring_bytes, sizeof(shm_word), true);
    const shm_mapping other_words =
        shm_mapping::of(memory.get(), ring_bytes, sizeof(shm_word), true);
    auto* const consumed = reinterpret_cast<shm_word*>(words.data());
    const std::uint64_t origin = random_u64();
    consumed->store(origin);
    constexpr std::uint64_t slots = 4 * lines, count = 20 * slots;
    std::vector<std::uint64_t> beside(slots);  // Farther apart than the ring is long.
    std::thread far([&] {
        shm_ring_reader reader(
            {read.data(), lines, origin, reinterpret_cast<shm_word*>(other_words.data())});
        for (std::uint64_t next = 0; next < count;) {
            const std::byte* const record = reader.record();
            if (record == nullptr) {
                std::this_thread::yield();
                continue;
            }
            if (shm_ring_reader::header_of(record).kind == shm_start_over_kind) {
                reader.start_over();
                continue;
            }
            ASSERT_EQ(beside[next % slots], next);
            beside[next % slots] = 0;
            reader.consume(0);
            ++next;
        }
    });
    shm_ring_writer writer({written.data(), lines, origin, consumed});
    for (std::uint64_t next = 0; next < count; ++next) {
        // Read and cleared long ago, as the ring is shorter than that.
        beside[next % slots] = next;
        while (!writer.write_short(header_of(0, next), {}))
            std::this_thread::yield();
    }
    far.join();
}

}  // namespace
}  // namespace amalgam::detail
