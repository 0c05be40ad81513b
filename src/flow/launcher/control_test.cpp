#include "flow/launcher/control.hpp"

#include <string>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>

#include "flow/limits.hpp"

namespace amalgam::detail {
namespace {

using kind = control_message::kind;

control_message through_the_wire(const control_message& sent) {
    std::string line = encode(sent);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    return decode_control(line.substr(0, line.size() - 1)).value();
}

TEST(control, every_message_arrives_as_it_was_sent) {
    control_message welcome;
    welcome.what = kind::welcome;
    welcome.group = "G \"1\"\n";
    welcome.replica = 3;
    welcome.config = R"({"groups": {}})";
    auto got = through_the_wire(welcome);
    EXPECT_EQ(got.what, kind::welcome);
    EXPECT_EQ(got.group, welcome.group);
    EXPECT_EQ(got.replica, 3u);
    EXPECT_EQ(got.config, welcome.config);

    control_message go;
    go.what = kind::go;
    go.addresses = {{"shm://a", "shm://b"}, {""}};
    EXPECT_EQ(through_the_wire(go).addresses, go.addresses);

    for (const kind what : {kind::key, kind::keys}) {
        control_message keys;
        keys.what = what;
        keys.keys = {"00ff", ""};
        keys.join_ms = 30;
        got = through_the_wire(keys);
        EXPECT_EQ(got.what, what);
        EXPECT_EQ(got.keys, keys.keys);
        EXPECT_EQ(got.join_ms, what == kind::key ? 30u : 0u);
    }

    control_message failed;
    failed.what = kind::failed;
    failed.sentence = "not \xff UTF-8";
    failed.because_of_other = true;
    got = through_the_wire(failed);
    EXPECT_EQ(got.sentence.rfind("not ", 0), 0u);
    EXPECT_TRUE(got.because_of_other);
}

TEST(control, nonsense_is_an_error_not_a_message) {
    for (const char* line :
         {"", "7", "{}", R"({"kind": "dance"})", R"({"kind": 1})",
          R"({"kind": "go", "addresses": 3})", R"({"kind": "keys", "keys": [1]})",
          R"({"kind": "welcome", "replica": "x"})", R"({"kind": "key", "join_ms": 1e300})"})
        EXPECT_FALSE(decode_control(line).ok()) << line;
}

class control_pair : public testing::Test {
protected:
    void SetUp() override {
        int ends[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        left_.reset(ends[0]);
        right_.reset(ends[1]);
    }
    unique_fd left_, right_;
};

TEST_F(control_pair, messages_arrive_in_order_however_they_are_cut) {
    control_message ready;
    ready.what = kind::ready;
    ready.address = "first";
    std::string bytes = encode(ready);
    ready.address = "second";
    bytes += encode(ready);
    control_line reader(right_.get());
    bool gone = false;
    for (char one : bytes) {
        ASSERT_EQ(::send(left_.get(), &one, 1, 0), 1);
        auto got = reader.try_receive(gone);
        ASSERT_EQ(got.has_value(), one == '\n');
        EXPECT_TRUE(!got || got->what == kind::ready);
    }
    EXPECT_FALSE(gone);
}

TEST_F(control_pair, a_line_of_nonsense_is_the_end) {
    control_message ready;
    ready.what = kind::ready;
    const std::string bytes = encode(ready) + "nonsense\n" + encode(ready);
    ASSERT_EQ(::send(left_.get(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
    control_line reader(right_.get());
    bool gone = false;
    EXPECT_TRUE(reader.try_receive(gone).has_value());
    EXPECT_FALSE(gone);
    EXPECT_FALSE(reader.try_receive(gone).has_value());
    EXPECT_TRUE(gone);

    ASSERT_EQ(::send(left_.get(), "{}\n", 3, 0), 3);
    control_line waiting(right_.get());
    EXPECT_FALSE(waiting.receive().has_value());
}

TEST_F(control_pair, a_line_without_an_end_is_not_kept) {
    control_line reader(right_.get());
    const std::string piece(100'000, 'x');
    bool gone = false;
    std::size_t sent = 0;
    while (!gone) {
        ASSERT_EQ(::send(left_.get(), piece.data(), piece.size(), 0),
                  static_cast<ssize_t>(piece.size()));
        sent += piece.size();
        EXPECT_FALSE(reader.try_receive(gone).has_value());
        ASSERT_LE(sent, 2 * limits::max_control_bytes);
    }
    EXPECT_EQ(reader.nonsense(), "a line of more than 8 MiB");
}

TEST_F(control_pair, a_report_that_would_be_no_message_is_left_out) {
    control_message report;
    report.what = kind::report;
    report.report = std::string(limits::max_control_bytes, 'x');
    EXPECT_TRUE(control_line(left_.get()).send(report));
    report.report = "short";
    EXPECT_TRUE(control_line(left_.get()).send(report));
    control_line reader(right_.get());
    EXPECT_EQ(reader.receive().value().report, "short");
}

TEST_F(control_pair, an_answer_to_a_query_arrives_with_what_has_room) {
    control_message query;
    query.what = kind::status_query;
    EXPECT_EQ(through_the_wire(query).what, kind::status_query);
    EXPECT_FALSE(through_the_wire(query).asks_ults);
    query.asks_ults = true;
    EXPECT_TRUE(through_the_wire(query).asks_ults);
    control_message answer;
    answer.what = kind::report;
    answer.report = "short";
    answer.metrics = "00ff";
    answer.drawing = "{}";
    answer.ults = "00";
    answer.answers_queries = true;
    control_message got = through_the_wire(answer);
    EXPECT_EQ(got.metrics, "00ff");
    EXPECT_EQ(got.drawing, "{}");
    EXPECT_EQ(got.ults, "00");
    EXPECT_TRUE(got.answers_queries);

    control_line writer(left_.get()), reader(right_.get());
    answer.metrics = std::string(limits::max_control_bytes, '0');
    EXPECT_TRUE(writer.send(answer));
    got = reader.receive().value();
    EXPECT_EQ(got.report, "short");
    EXPECT_TRUE(got.answers_queries && got.metrics.empty());
    answer.report = std::string(limits::max_control_bytes, 'x');
    EXPECT_TRUE(writer.send(answer));
    got = reader.receive().value();
    EXPECT_TRUE(got.answers_queries && got.report.empty());
}

TEST_F(control_pair, of_a_sentence_without_end_its_beginning_is_told) {
    control_message failed;
    failed.what = kind::failed;
    failed.sentence =
        "the node \"split\" failed: " + std::string(2 * limits::max_control_bytes, 'z');
    EXPECT_TRUE(control_line(left_.get()).send(failed));
    control_line reader(right_.get());
    EXPECT_EQ(reader.receive().value().sentence,
              failed.sentence.substr(0, limits::max_reason_bytes));
}

TEST_F(control_pair, a_closed_end_is_noticed) {
    control_line reader(right_.get());
    control_message ready;
    ready.what = kind::ready;
    ASSERT_TRUE(control_line(left_.get()).send(ready));
    left_.reset();
    EXPECT_TRUE(reader.receive().has_value());
    EXPECT_FALSE(reader.receive().has_value());
    EXPECT_FALSE(control_line(right_.get()).send(ready));
}

}  // namespace
}  // namespace amalgam::detail
