#include "fabric/transports/tcp/hello.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace amalgam::detail {
namespace {

/// Both ends of a byte stream; what write() puts in comes out at `out`.
struct stream {
    unique_fd in, out;
    stream() {
        int ends[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        in.reset(ends[0]);
        out.reset(ends[1]);
    }
    void write(const_bytes bytes) {
        ASSERT_EQ(::send(in.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
};

using state = hello_reader::state;

TEST(hello, survives_the_wire_byte_by_byte) {
    stream wire;
    encoded_hello sent({.incarnation = 0x1122334455667788u, .address = "tcp://10.0.0.5:7000"});
    hello_reader reader;
    for (std::size_t i = 0; i < sent.bytes().size(); ++i) {
        EXPECT_EQ(reader.read(wire.out.get()), state::starving) << i;
        wire.write(sent.bytes().subspan(i, 1));
    }
    ASSERT_EQ(reader.read(wire.out.get()), state::complete);
    EXPECT_EQ(reader.result().version, hello::current_version);
    EXPECT_EQ(reader.result().incarnation, 0x1122334455667788u);
    EXPECT_EQ(reader.result().address, "tcp://10.0.0.5:7000");
}

TEST(hello, its_first_bytes_are_these_for_ever) {
    encoded_hello sent({.incarnation = 1, .address = "x"});
    std::string begins(reinterpret_cast<const char*>(sent.bytes().data()), 16);
    EXPECT_EQ(begins, std::string("\x11\0\0\0\x10\0\2\0Amalgm\n1", 16));
}

TEST(hello, reading_takes_nothing_of_what_follows) {
    stream wire;
    wire.write(encoded_hello({.incarnation = 1}).bytes());
    wire.write(as_bytes_of(std::string_view("next")));
    hello_reader reader;
    ASSERT_EQ(reader.read(wire.out.get()), state::complete);
    char rest[8];
    ASSERT_EQ(::recv(wire.out.get(), rest, sizeof rest, MSG_DONTWAIT), 4);
    EXPECT_EQ(std::string_view(rest, 4), "next");
}

TEST(hello, a_long_address_is_cut) {
    stream wire;
    wire.write(encoded_hello({.incarnation = 1, .address = std::string(5000, 'a')}).bytes());
    hello_reader reader;
    ASSERT_EQ(reader.read(wire.out.get()), state::complete);
    EXPECT_EQ(reader.result().address, std::string(hello::max_address_bytes, 'a'));
}

TEST(hello, another_protocol_is_a_stranger_at_its_sixteenth_byte) {
    stream wire;
    wire.write(as_bytes_of(std::string_view("GET / HTTP/1.1\r")));
    hello_reader reader;
    EXPECT_EQ(reader.read(wire.out.get()), state::starving);
    wire.write(as_bytes_of(std::string_view("\n")));
    EXPECT_EQ(reader.read(wire.out.get()), state::stranger);
    EXPECT_EQ(reader.beginning(), "GET / HTTP/1.1..");
}

/// Reads back a valid hello with `mend` applied.
template <typename Mend>
state read_after(Mend mend) {
    stream wire;
    encoded_hello sent({.incarnation = 1, .address = "here"});
    std::vector<std::byte> bytes(sent.bytes().begin(), sent.bytes().end());
    mend(bytes);
    wire.write(bytes);
    hello_reader reader;
    return reader.read(wire.out.get());
}

TEST(hello, wrong_lengths_are_a_strangers) {
    EXPECT_EQ(read_after([](auto& b) { store_le<std::uint32_t>(b.data(), 1u << 30); }),
              state::stranger);
    EXPECT_EQ(read_after([](auto& b) { store_le<std::uint32_t>(b.data(), 15); }), state::stranger);
    EXPECT_EQ(read_after([](auto& b) { store_le<std::uint16_t>(b.data() + 24, 5); }),
              state::stranger);
    EXPECT_EQ(read_after([](auto& b) { b[4] = std::byte{1}; }), state::stranger);
    EXPECT_EQ(read_after([](auto& b) { b[8] = std::byte{'B'}; }), state::stranger);
    EXPECT_EQ(read_after([](auto&) {}), state::complete);
}

TEST(hello, no_incarnation_is_a_strangers) {
    EXPECT_EQ(read_after([](auto& b) { store_le<std::uint64_t>(b.data() + 16, 0); }),
              state::stranger);
}

TEST(hello, another_version_is_read_and_reported) {
    stream wire;
    wire.write(encoded_hello({.version = 9, .incarnation = 1}).bytes());
    hello_reader reader;
    ASSERT_EQ(reader.read(wire.out.get()), state::complete);
    EXPECT_EQ(reader.result().version, 9);
}

TEST(hello, an_early_end_is_told_from_silence) {
    stream wire;
    hello_reader reader;
    EXPECT_EQ(reader.read(wire.out.get()), state::starving);
    wire.in.reset();
    EXPECT_EQ(reader.read(wire.out.get()), state::ended);
}

}  // namespace
}  // namespace amalgam::detail
