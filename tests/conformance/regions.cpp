#include <vector>

#include <amalgam/core/random.hpp>

#include "conformance/pattern.hpp"
#include "conformance/transport_suite.hpp"

namespace amalgam::conformance {
namespace {

constexpr std::size_t room = 4096;

/// Memory at one end with guards around it, and a key that must be refused.
struct guarded {
    mutable_bytes whole;   ///< Guards and middle.
    mutable_bytes middle;  ///< Covered by the region.
};

guarded guard(mutable_bytes whole) {
    std::fill(whole.begin(), whole.end(), untouched);
    return {whole, whole.subspan(room, whole.size() - 2 * room)};
}

TEST_P(transport_suite, key_names_its_port_and_survives_the_wire) {
    node& a = open();
    region one = a.end().open_region(zeroed(100), access::read).value();
    region two = a.end().open_region(zeroed(100), access::read_write).value();
    EXPECT_EQ(one.key().incarnation, a.end().incarnation());
    EXPECT_NE(a.end().incarnation(), 0u);
    EXPECT_EQ(one.bytes(), 100u);
    EXPECT_EQ(one.key().rights, access::read);
    EXPECT_NE(one.key().secret, two.key().secret);
    EXPECT_NE(one.key().region, two.key().region);
    EXPECT_EQ(remote_key::decode(two.key().encode()), two.key());
}

TEST_P(transport_suite, refused_key_is_denied_and_touches_nothing) {
    node& b = open();
    node& other = open();
    connection over = connect(open(), b);
    guarded memory = guard(zeroed(3 * room));
    mutable_bytes theirs = zeroed(room);
    region whole = b.end().open_region(memory.middle, access::read_write).value();
    region readable = b.end().open_region(memory.middle, access::read).value();
    region writable = b.end().open_region(memory.middle, access::write).value();
    region elsewhere = other.end().open_region(theirs, access::read_write).value();
    remote_key closed = b.end().open_region(memory.middle, access::read_write).value().key();

    auto forged = [&](auto change) {
        remote_key key = whole.key();
        change(key);
        return key;
    };
    struct refusal {
        const char* why;
        remote_key key;
        bool put, get;
        std::uint64_t offset = 0;
        std::size_t bytes = 64;
    };
    constexpr std::uint64_t top = ~0ull;
    remote_key widened_reader = readable.key();
    widened_reader.rights = access::read_write;
    remote_key widened_writer = writable.key();
    widened_writer.rights = access::read_write;
    const refusal refusals[] = {
        {"put with a read key", readable.key(), true, false},
        {"get with a write key", writable.key(), false, true},
        {"read key that claims more", widened_reader, true, false},
        {"write key that claims more", widened_writer, false, true},
        {"one bit of the secret", forged([](auto& k) { k.secret ^= 1; }), true, true},
        {"high bit of the secret", forged([](auto& k) { k.secret ^= 1ull << 63; }), true, true},
        {"no secret", forged([](auto& k) { k.secret = 0; }), true, true},
        {"another region's secret", forged([&](auto& k) { k.secret = readable.key().secret; }),
         true, true},
        {"wrong region", forged([](auto& k) { k.region ^= 1; }), true, true},
        {"absurd region", forged([](auto& k) { k.region = ~0ull; }), true, true},
        {"another incarnation", forged([](auto& k) { k.incarnation ^= 1; }), true, true},
        {"another port's region", elsewhere.key(), true, true},
        {"another port's region with our incarnation", forged([&](auto& k) {
             k.secret = elsewhere.key().secret, k.region = elsewhere.key().region;
         }),
         true, true},
        {"closed region", closed, true, true},
        {"all zero", remote_key{}, true, true},
        {"past the end by one", whole.key(), true, true, room - 63},
        {"begins at the end", whole.key(), true, true, room},
        {"begins past the end", whole.key(), true, true, room + 1},
        {"no bytes past the end", whole.key(), true, true, room + 1, 0},
        {"no bytes, forged", forged([](auto& k) { k.secret ^= 2; }), true, true, 0, 0},
        {"end overflows to inside", whole.key(), true, true, top - 31},
        {"end overflows to 0", whole.key(), true, true, top - 63},
        {"largest offset", whole.key(), true, true, top},
        {"before the start", whole.key(), true, true, std::uint64_t(0) - 64},
        {"sign bit", whole.key(), true, true, 1ull << 63},
        {"past 32 bits", whole.key(), true, true, 1ull << 32},
        {"key that claims more bytes", forged([](auto& k) { k.bytes += 64; }), true, true, room},
        {"key that claims all bytes", forged([](auto& k) { k.bytes = top; }), true, true, room},
        {"larger than the region", whole.key(), true, true, 0, room + 1},
        {"much larger than the region", whole.key(), true, true, 0, 4 << 20},
        {"one byte too long, large", whole.key(), true, true, room - (1 << 10), (1 << 10) + 1},
    };
    const_bytes source = patterned(4 << 20, 1);
    mutable_bytes into = zeroed(4 << 20);
    std::fill(into.begin(), into.end(), untouched);
    for (const refusal& each : refusals) {
        SCOPED_TRACE(each.why);
        if (each.put) {
            operation& op = complete(over.a, request::put(over.b_at_a, {source.first(each.bytes)},
                                                          each.key, each.offset));
            EXPECT_EQ(op.code(), errc::denied) << "put";
        }
        if (each.get) {
            operation& op = complete(
                over.a, request::get(over.b_at_a, {into.first(each.bytes)}, each.key, each.offset));
            EXPECT_EQ(op.code(), errc::denied) << "get";
            ASSERT_TRUE(is_all(into.first(each.bytes), untouched)) << "a refused get wrote";
        }
        ASSERT_TRUE(is_all(memory.whole, untouched)) << "a refused put wrote";
    }
    EXPECT_TRUE(is_all(theirs, std::byte{0}));
    // The connection still works, and so does the right key.
    EXPECT_EQ(
        complete(over.a, request::put(over.b_at_a, {source.first(64)}, whole.key(), 0)).code(),
        errc::ok);
}

TEST_P(transport_suite, large_transfer_with_a_refused_key_is_denied_and_touches_nothing) {
    connection over = connected_pair();
    std::size_t bytes = std::size_t{8} << 20;
    mutable_bytes far = zeroed(bytes);
    mutable_bytes near = zeroed(bytes);
    region target = over.b.end().open_region(far, access::read_write).value();
    remote_key forged = target.key();
    forged.secret ^= 4;
    const_bytes source = patterned(bytes, 1);
    EXPECT_EQ(complete(over.a, request::put(over.b_at_a, {source}, forged, 0)).code(),
              errc::denied);
    EXPECT_EQ(complete(over.a, request::get(over.b_at_a, {near}, forged, 0)).code(), errc::denied);
    EXPECT_EQ(complete(over.a, request::put(over.b_at_a, {source}, target.key(), 1)).code(),
              errc::denied);
    EXPECT_EQ(complete(over.a, request::get(over.b_at_a, {near}, target.key(), 1)).code(),
              errc::denied);
    flush(over);
    EXPECT_TRUE(is_all(far, std::byte{0}));
    EXPECT_TRUE(is_all(near, std::byte{0}));
}

TEST_P(transport_suite, slot_of_a_closed_region_does_not_open_for_its_old_key) {
    connection over = connected_pair();
    mutable_bytes far = zeroed(64);
    const_bytes source = patterned(64, 1);
    std::vector<remote_key> old;
    for (int i = 0; i < 300; ++i) {
        region target = over.b.end().open_region(far, access::read_write).value();
        old.push_back(target.key());
    }
    region last = over.b.end().open_region(far, access::read_write).value();
    for (const remote_key& key : old) {
        ASSERT_NE(key, last.key());
        operation& op = complete(over.a, request::put(over.b_at_a, {source}, key, 0));
        ASSERT_EQ(op.code(), errc::denied);
    }
    EXPECT_TRUE(is_all(far, std::byte{0}));
}

TEST_P(transport_suite, thousand_regions_are_open_at_once) {
    connection over = connected_pair();
    std::vector<mutable_bytes> places;
    std::vector<region> open_ones;
    for (std::uint64_t i = 0; i < 1000; ++i) {
        places.push_back(zeroed(16));
        open_ones.push_back(over.b.end().open_region(places.back(), access::write).value());
    }
    for (std::uint64_t i = 0; i < 1000; i += 3)
        open_ones[i] = region();
    for (std::uint64_t i = 0; i < 1000; ++i) {
        if (i % 3 == 0) continue;
        operation& op =
            complete(over.a, request::put(over.b_at_a, {patterned(16, i)}, open_ones[i].key(), 0));
        ASSERT_EQ(op.code(), errc::ok);
    }
    for (std::uint64_t i = 0; i < 1000; ++i) {
        if (i % 3 == 0) {
            ASSERT_TRUE(is_all(places[i], std::byte{0}));
        } else {
            ASSERT_TRUE(is_pattern(places[i], i));
        }
    }
}

TEST_P(transport_suite, region_closed_during_a_transfer_ends_it_once) {
    connection over = connected_pair();
    std::size_t bytes = std::size_t{is_brief() ? 1u : 4u} << 20;
    const_bytes source = patterned(bytes, 1);
    for (op_kind kind : {op_kind::put, op_kind::get}) {
        for (int after : {0, 1, 2, 3, 5, 8, 13, 30}) {
            SCOPED_TRACE(std::string(name(kind)) + ", closed after " + std::to_string(after));
            mutable_bytes far = zeroed(bytes);
            mutable_bytes near = zeroed(bytes);
            fill_pattern(far, 2);
            region target = over.b.end().open_region(far, access::read_write).value();
            request ask = kind == op_kind::put
                              ? request::put(over.b_at_a, {source}, target.key(), 0)
                              : request::get(over.b_at_a, {near}, target.key(), 0);
            operation& op = start(over.a, ask);
            for (int i = 0; i < after; ++i) {
                over.a.progress(1);
                over.b.progress(1);
            }
            target = region();
            // The owner may reuse the memory: late writes would show.
            std::fill(far.begin(), far.end(), untouched);
            finish(op);
            EXPECT_TRUE(op.code() == errc::ok || op.code() == errc::denied)
                << amalgam::name(op.code());
            flush(over);
            EXPECT_TRUE(is_all(far, untouched));
            if (kind == op_kind::get && op.code() == errc::ok) {
                EXPECT_TRUE(is_pattern(near, 2));
            }
        }
    }
}

TEST_P(transport_suite, moved_region_keeps_its_key_open) {
    connection over = connected_pair();
    mutable_bytes far = zeroed(8);
    region first = over.b.end().open_region(far, access::write).value();
    region second = std::move(first);
    EXPECT_FALSE(first);
    operation& op = complete(over.a, request::put(over.b_at_a, {patterned(8, 1)}, second.key(), 0));
    EXPECT_EQ(op.code(), errc::ok);
    EXPECT_TRUE(is_pattern(far, 1));
}

}  // namespace
}  // namespace amalgam::conformance
