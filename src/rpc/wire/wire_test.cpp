#include "rpc/wire/wire.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "rpc/limits.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;
using bytes = std::vector<std::byte>;

bytes request(bool named, std::string_view names, std::string_view arguments) {
    bytes all(request_bytes);
    write_request(all.data(), {.flags = named ? wire_flag::named : std::uint8_t{0},
                               .provider = 3,
                               .microseconds = 7,
                               .procedure = 0x1122334455667788});
    for (const std::string_view part : {names, arguments}) {
        for (char c : part)
            all.push_back(static_cast<std::byte>(c));
    }
    return all;
}

TEST(rpc_wire, a_request_is_laid_out_as_documented) {
    const bytes all = request(false, "", "ab");
    const unsigned char expected[] = {0x21, 0,    3,    0,    7,    0,    0,    0,   0x88,
                                      0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 'a', 'b'};
    ASSERT_EQ(all.size(), sizeof expected);
    EXPECT_EQ(std::memcmp(all.data(), expected, sizeof expected), 0);
}

TEST(rpc_wire, an_ordinary_header_is_known_by_its_first_word_and_no_other_is) {
    const auto head_of = [](const bytes& all) { return load_le<std::uint64_t>(all.data()); };
    for (const std::uint8_t flags : {0, 1, 2, 4, 8, 16, 18, 32}) {
        const bool ordinary = flags == 0 || flags == wire_flag::xdr;
        for (const message_kind kind : {message_kind::request, message_kind::one_way}) {
            for (const std::uint32_t microseconds : {0u, 1u, 0x80000000u}) {
                bytes all(request_bytes);
                write_request(all.data(), {.kind = kind,
                                           .flags = flags,
                                           .provider = 0xfffe,
                                           .microseconds = microseconds,
                                           .procedure = 1});
                const bool one_way = kind == message_kind::one_way;
                EXPECT_EQ(plain_head::is_request(head_of(all)), ordinary && !one_way);
                EXPECT_EQ(plain_head::is_one_way(head_of(all)), ordinary && one_way);
                EXPECT_FALSE(plain_head::is_reply(head_of(all)));
                EXPECT_FALSE(plain_head::is_mail(head_of(all)));
                EXPECT_EQ(plain_head::microseconds_of(head_of(all)), microseconds);
                if (ordinary) {
                    EXPECT_EQ(plain_head::of_request(kind, 0xfffe, flags != 0, microseconds),
                              head_of(all));
                }
            }
        }
        for (const status what : {status{}, status{errc::timed_out}, status{errc::ok, 1}}) {
            bytes all(reply_bytes);
            write_reply(all.data(), what, flags);
            const bool plain = ordinary && what.ok() && what.native == 0;
            EXPECT_EQ(plain_head::is_reply(head_of(all)), plain);
            EXPECT_FALSE(plain_head::is_request(head_of(all)));
            EXPECT_FALSE(plain_head::is_one_way(head_of(all)));
            if (plain) {
                EXPECT_EQ(plain_head::of_reply(flags != 0), head_of(all));
            }
        }
        bytes mail(mail_bytes);
        write_mail(mail.data(), flags);
        EXPECT_EQ(plain_head::is_mail(head_of(mail)), flags == 0);
    }
}

TEST(rpc_wire, two_ints_fit_an_inline_slot_with_their_header) {
    EXPECT_LE(request_bytes + 2 * sizeof(int), 48u);
    EXPECT_LE(reply_bytes + sizeof(int), 48u);
}

TEST(rpc_wire, a_named_request_says_both_texts_and_keeps_arguments_aligned) {
    const std::string names = names_text("sum", "i32(i32,i32)");
    EXPECT_EQ(names.size() % 8, 0u);
    const bytes all = request(true, names, "arguments");
    parsed_message parsed;
    ASSERT_EQ(parse(all, parsed), nullptr);
    EXPECT_EQ(parsed.kind, message_kind::request);
    EXPECT_EQ(parsed.provider, 3u);
    EXPECT_EQ(parsed.microseconds, 7u);
    EXPECT_EQ(parsed.procedure, 0x1122334455667788u);
    EXPECT_EQ(parsed.name, "sum");
    EXPECT_EQ(parsed.signature, "i32(i32,i32)");
    EXPECT_EQ(as_text(parsed.body), "arguments");
    EXPECT_EQ((parsed.body.data() - all.data()) % 8, 0);
}

TEST(rpc_wire, replies_verdicts_and_cancels_come_back) {
    std::byte all[verdict_bytes];
    parsed_message parsed;
    write_reply(all, {errc::handler_failed, -5});
    ASSERT_EQ(parse(const_bytes(all, reply_bytes), parsed), nullptr);
    EXPECT_EQ(parsed.kind, message_kind::reply);
    EXPECT_EQ(parsed.what, errc::handler_failed);
    EXPECT_EQ(parsed.what.native, -5);
    write_verdict(all, {errc::mismatch}, 99);
    ASSERT_EQ(parse(all, parsed), nullptr);
    EXPECT_EQ(parsed.kind, message_kind::verdict);
    EXPECT_EQ(parsed.what, errc::mismatch);
    EXPECT_EQ(parsed.procedure, 99u);
    write_cancel(all);
    ASSERT_EQ(parse(const_bytes(all, cancel_bytes), parsed), nullptr);
    EXPECT_EQ(parsed.kind, message_kind::cancel);
}

TEST(rpc_wire, a_code_that_is_none_of_ours_goes_as_handler_failed_with_it_inside) {
    std::byte all[verdict_bytes];
    parsed_message parsed;
    write_reply(all, {static_cast<errc>(200), 5});
    ASSERT_EQ(parse(const_bytes(all, reply_bytes), parsed), nullptr);
    EXPECT_EQ(parsed.what, errc::handler_failed);
    EXPECT_EQ(parsed.what.handler_code(), static_cast<errc>(200));
    write_verdict(all, {static_cast<errc>(200)}, 3);
    ASSERT_EQ(parse(all, parsed), nullptr);
    EXPECT_EQ(parsed.what.handler_code(), static_cast<errc>(200));
}

TEST(rpc_wire, what_is_no_message_is_refused) {
    parsed_message parsed;
    EXPECT_STREQ(parse({}, parsed), "empty message");
    const auto refused = [&](bytes all) { return parse(all, parsed) != nullptr; };
    for (std::size_t length = 0; length < request_bytes; ++length) {
        bytes all = request(false, "", "");
        all.resize(length);
        EXPECT_TRUE(refused(all)) << length;
    }
    const std::string names = names_text("f", "void()");
    for (std::size_t length = request_bytes; length < request_bytes + names.size(); ++length) {
        bytes all = request(true, names, "");
        all.resize(length);
        EXPECT_TRUE(refused(all)) << length;
    }
    const auto changed = [](std::size_t at, int value) {
        bytes all = request(false, "", "");
        all[at] = static_cast<std::byte>(value);
        return all;
    };
    EXPECT_TRUE(refused(changed(0, 0x11)));  // Another version.
    EXPECT_TRUE(refused(changed(0, 0x2f)));  // Another kind.
    EXPECT_TRUE(refused(changed(1, 128)));   // An unknown flag.
    EXPECT_TRUE(refused({std::byte{0x23}, std::byte{200}, {}, {}, {}, {}, {}, {}}));  // The status.
    EXPECT_TRUE(refused({std::byte{0x23}, {}, std::byte{1}, {}, {}, {}, {}, {}}));    // Flags.
    EXPECT_TRUE(refused({std::byte{0x23}, {}, {}, std::byte{1}, {}, {}, {}, {}}));    // Reserved.
    for (std::size_t at = 1; at < cancel_bytes; ++at) {
        bytes cancel(cancel_bytes);
        write_cancel(cancel.data());
        cancel[at] = std::byte{1};
        EXPECT_TRUE(refused(cancel)) << at;
    }
}

TEST(rpc_wire, extras_are_found_by_key_and_unknown_ones_are_skipped) {
    std::vector<std::byte> extras;
    const bytes trace(32, std::byte{7});
    add_extra(extras, static_cast<extra>(999), as_bytes("of a later version"));
    add_metadata(extras, "user", "ann");
    add_metadata(extras, "us", "b");
    add_extra(extras, extra::trace, trace);
    EXPECT_EQ(extras.size() % 8, 0u);
    bytes all(request_bytes);
    write_request(all.data(), {.flags = wire_flag::named | wire_flag::extras});
    all.insert(all.end(), extras.begin(), extras.end());
    const std::string names = names_text("f", "void()");
    all.insert(all.end(), as_bytes(names).begin(), as_bytes(names).end());
    all.push_back(std::byte{42});
    parsed_message parsed;
    ASSERT_STREQ(parse(all, parsed), nullptr);
    EXPECT_EQ(find_metadata(parsed.extras, "user"), "ann");
    EXPECT_EQ(find_metadata(parsed.extras, "us"), "b");
    EXPECT_EQ(find_metadata(parsed.extras, "u"), std::nullopt);
    EXPECT_EQ(find_extra(parsed.extras, extra::trace).size(), 32u);
    EXPECT_TRUE(find_extra(parsed.extras, extra::loans).empty());
    EXPECT_TRUE(has_kind(kinds_of(parsed.extras), extra::trace));
    EXPECT_FALSE(has_kind(kinds_of(parsed.extras), extra::loans));
    EXPECT_EQ(parsed.name, "f");
    EXPECT_EQ(parsed.body.size(), 1u);
    for (std::size_t length = request_bytes; length + 1 < all.size(); ++length) {
        EXPECT_NE(parse(const_bytes(all).first(length), parsed), nullptr) << length;
    }
}

TEST(rpc_wire, extras_of_the_wrong_shape_are_refused) {
    const auto refused = [](extra key, std::size_t size) {
        std::vector<std::byte> extras;
        add_extra(extras, key, bytes(size));
        bytes all(reply_bytes);
        write_reply(all.data(), {}, wire_flag::extras);
        all.insert(all.end(), extras.begin(), extras.end());
        parsed_message parsed;
        return parse(all, parsed) != nullptr;
    };
    EXPECT_TRUE(refused(extra::trace, 31));
    EXPECT_TRUE(refused(extra::loans, 12));
    EXPECT_TRUE(refused(extra::rendezvous, 48));
    EXPECT_TRUE(refused(extra::window, 4));
    EXPECT_TRUE(refused(extra::checksum, 8));
    EXPECT_FALSE(refused(extra::loans, 16));
    std::vector<std::byte> extras;
    EXPECT_THROW(add_extra(extras, extra::metadata, bytes(limits::max_extras_bytes)), error);
}

TEST(rpc_wire, extra_whose_length_changed_after_it_was_parsed_is_not_found) {
    for (const extra key : {extra::trace, extra::rendezvous, extra::checksum, extra::window}) {
        std::vector<std::byte> extras;
        const std::vector<std::byte> value(key == extra::trace        ? 32
                                           : key == extra::rendezvous ? 40
                                           : key == extra::window     ? 8
                                                                      : 4);
        add_extra(extras, key, value);
        ASSERT_EQ(find_extra(extras, key).size(), value.size());
        // A sender over shared memory can do this; the length is 4 bytes after the key.
        store_le(extras.data() + 8 + 4, std::uint32_t{1});
        EXPECT_TRUE(find_extra(extras, key).empty());
    }
}

TEST(rpc_wire, credits_and_releases_come_back) {
    bytes all(credit_bytes);
    parsed_message parsed;
    write_credit(all.data(), 12);
    ASSERT_STREQ(parse(all, parsed), nullptr);
    EXPECT_EQ(parsed.kind, message_kind::credit);
    EXPECT_EQ(parsed.items, 12u);
    all.resize(release_bytes + 16);
    write_release(all.data());
    ASSERT_STREQ(parse(all, parsed), nullptr);
    EXPECT_EQ(parsed.body.size(), 16u);
    all.resize(release_bytes + 15);
    EXPECT_STREQ(parse(all, parsed), "wrong length");
}

TEST(rpc_wire, mail_comes_back_and_is_refused_if_it_is_another_shape) {
    const bytes text(5, std::byte{7});
    bytes all(mail_bytes);
    write_mail(all.data(), 0);
    all.insert(all.end(), text.begin(), text.end());
    parsed_message parsed;
    ASSERT_STREQ(parse(all, parsed), nullptr);
    EXPECT_EQ(parsed.kind, message_kind::mail);
    EXPECT_EQ(parsed.body.size(), text.size());
    EXPECT_STREQ(parse(const_bytes(all).first(mail_bytes - 1), parsed), "shorter than its header");
    for (const std::size_t reserved : {2, 7}) {
        bytes odd = all;
        odd[reserved] = std::byte{1};
        EXPECT_STREQ(parse(odd, parsed), "a reserved field is nonzero");
    }
    for (const std::uint8_t flag : {wire_flag::named, wire_flag::xdr, wire_flag::extras}) {
        write_mail(all.data(), flag);
        EXPECT_STREQ(parse(all, parsed), "a reserved field is nonzero");
    }
    write_mail(all.data(), wire_flag::checked);
    const const_bytes pieces[] = {all};
    const auto sum = checksum_of(pieces);
    all.insert(all.end(), sum.begin(), sum.end());
    ASSERT_STREQ(parse(all, parsed), nullptr);
    EXPECT_EQ(parsed.body.size(), text.size());
    all[mail_bytes] ^= std::byte{1};
    EXPECT_NE(parse(all, parsed), nullptr);
    EXPECT_TRUE(parsed.corrupt);
    EXPECT_NE(parse(const_bytes(all).first(mail_bytes + 2), parsed), nullptr);
}

TEST(rpc_wire, ids_differ_by_name_and_by_signature) {
    EXPECT_EQ(procedure_id("f", "void()"), procedure_id("f", "void()"));
    EXPECT_NE(procedure_id("f", "void()"), procedure_id("g", "void()"));
    EXPECT_NE(procedure_id("f", "void()"), procedure_id("f", "void(i32)"));
    EXPECT_NE(procedure_id("fv", "oid()"), procedure_id("f", "void()"));
}

TEST(rpc_wire, time_left_travels_in_whole_microseconds_and_never_as_none) {
    EXPECT_EQ(to_microseconds(0ns), 1u);
    EXPECT_EQ(to_microseconds(-5s), 1u);
    EXPECT_EQ(to_microseconds(1ns), 1u);
    EXPECT_EQ(to_microseconds(1001ns), 2u);
    EXPECT_EQ(to_microseconds(1h), 3'600'000'000u);
    EXPECT_EQ(to_microseconds(1h + 1ns), 0u);
}

}  // namespace
}  // namespace amalgam::detail
