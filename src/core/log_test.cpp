#include <atomic>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/limited_log.hpp>
#include <amalgam/core/log.hpp>

namespace amalgam {
namespace {

/// A logger whose lines are kept as JSON.
struct kept_log {
    logger log;
    std::vector<std::string> lines;

    kept_log() {
        log.set_sink([this](const log_record& record) { lines.push_back(to_json(record)); });
    }
};

TEST(log, line_carries_component_message_and_fields) {
    kept_log kept;
    kept.log.log(log_level::warn, "fabric", "peer lost",
                 {{"peer", "tcp://h:1"},
                  {"tries", 3},
                  {"left", -1L},
                  {"bytes", std::uint64_t{18446744073709551615u}},
                  {"share", 0.5},
                  {"known", true},
                  {"status", errc::timed_out}});
    ASSERT_EQ(kept.lines.size(), 1u);
    EXPECT_EQ(kept.lines[0],
              R"({"level": "warn", "component": "fabric", "message": "peer lost", )"
              R"("peer": "tcp://h:1", "tries": 3, "left": -1, "bytes": 18446744073709551615, )"
              R"("share": 0.5, "known": true, "status": "timed_out"})");
}

TEST(log, text_quotes_values_that_are_not_one_word) {
    std::vector<log_field> fields{{"a", "word"}, {"b", "two words"}, {"c", ""}, {"d", "x\ny"}};
    log_record record{{}, log_level::info, "c", "hello", fields};
    EXPECT_EQ(to_text(record), R"(hello a=word b="two words" c="" d="x\ny")");
}

TEST(log, json_has_no_infinities) {
    std::vector<log_field> fields{{"a", std::numeric_limits<double>::infinity()}};
    log_record record{{}, log_level::info, "c", "m", fields};
    EXPECT_NE(to_json(record).find("\"a\": null"), std::string::npos);
}

TEST(log, levels_below_the_threshold_are_dropped) {
    kept_log kept;
    kept.log.log(log_level::info, "x", "dropped");
    kept.log.set_level(log_level::info);
    kept.log.log(log_level::info, "x", "kept");
    kept.log.set_level(log_level::off);
    kept.log.log(log_level::error, "x", "dropped");
    kept.log.log(log_level::off, "x", "dropped");
    ASSERT_EQ(kept.lines.size(), 1u);
    EXPECT_NE(kept.lines[0].find("kept"), std::string::npos);
}

TEST(log, component_set_apart_has_its_own_level) {
    kept_log kept;
    kept.log.set_level("fabric", log_level::trace);
    EXPECT_TRUE(kept.log.may_log(log_level::trace));
    EXPECT_TRUE(kept.log.enabled(log_level::trace, "fabric"));
    EXPECT_FALSE(kept.log.enabled(log_level::trace, "rpc"));
    kept.log.log(log_level::trace, "rpc", "dropped");
    kept.log.log(log_level::trace, "fabric", "kept");
    EXPECT_EQ(kept.lines.size(), 1u);
}

TEST(log, configure_reads_levels_and_components) {
    kept_log kept;
    kept.log.configure("fabric=trace,info,rpc=off");
    EXPECT_TRUE(kept.log.enabled(log_level::trace, "fabric"));
    EXPECT_TRUE(kept.log.enabled(log_level::info, "flow"));
    EXPECT_FALSE(kept.log.enabled(log_level::debug, "flow"));
    EXPECT_FALSE(kept.log.enabled(log_level::error, "rpc"));
}

TEST(log, a_level_is_written_as_it_is_set_and_warning_is_taken_for_warn) {
    for (const char* word : {"warn", "warning", "rpc=warning"}) {
        logger log;
        log.configure(word);
        testing::internal::CaptureStderr();
        log.log(log_level::warn, "rpc", "lost");
        log.log(log_level::info, "rpc", "dropped");
        const std::string line = testing::internal::GetCapturedStderr();
        EXPECT_NE(line.find(" warn  rpc: lost\n"), std::string::npos) << word << ": " << line;
        EXPECT_EQ(line.find("dropped"), std::string::npos) << word;
    }
}

TEST(log, what_settings_do_not_name_keeps_its_setting) {
    kept_log kept;
    kept.log.configure("fabric=trace,info");
    kept.log.configure("rpc=off");
    EXPECT_TRUE(kept.log.enabled(log_level::trace, "fabric"));
    EXPECT_TRUE(kept.log.enabled(log_level::info, "flow"));
    EXPECT_FALSE(kept.log.enabled(log_level::error, "rpc"));
    kept.log.configure("error");
    EXPECT_TRUE(kept.log.enabled(log_level::trace, "fabric"));
    EXPECT_FALSE(kept.log.enabled(log_level::warn, "flow"));
}

TEST(log, wrong_settings_are_told_in_one_sentence_and_change_nothing) {
    kept_log kept;
    for (const char* wrong : {"loud", "trace,fabric=loud", "trace,=info", "fabric=json"}) {
        try {
            kept.log.configure(wrong);
            FAIL() << wrong;
        } catch (const error& refused) {
            EXPECT_EQ(refused.code().code, errc::invalid);
            EXPECT_NE(std::string(refused.what()).find("; example: AMALGAM_LOG="),
                      std::string::npos);
        }
        EXPECT_FALSE(kept.log.may_log(log_level::info)) << wrong;
    }
}

TEST(log, standard_sink_writes_one_line_to_standard_error) {
    logger log;
    testing::internal::CaptureStderr();
    log.log(log_level::error, "rpc", "lost", {{"n", 1}});
    std::string line = testing::internal::GetCapturedStderr();
    EXPECT_NE(line.find(" error rpc: lost n=1\n"), std::string::npos) << line;
}

TEST(log, an_empty_sink_brings_standard_error_back) {
    kept_log kept;
    kept.log.log(log_level::error, "rpc", "kept");
    kept.log.set_sink({});
    testing::internal::CaptureStderr();
    kept.log.log(log_level::error, "rpc", "shown");
    EXPECT_NE(testing::internal::GetCapturedStderr().find(" error rpc: shown\n"),
              std::string::npos);
    EXPECT_EQ(kept.lines.size(), 1u);
}

TEST(log, json_line_starts_with_its_time) {
    logger log;
    log.configure("json");
    testing::internal::CaptureStderr();
    log.log(log_level::error, "rpc", "100% {} lost", {{"n", 1}});
    std::string line = testing::internal::GetCapturedStderr();
    EXPECT_EQ(line.find("{\"time\": \"20"), 0u) << line;
    EXPECT_NE(line.find("\", \"level\": \"error\", \"component\": \"rpc\", "
                        "\"message\": \"100% {} lost\", \"n\": 1}\n"),
              std::string::npos)
        << line;
}

TEST(log, sink_that_throws_hurts_nobody) {
    logger log;
    log.set_sink([](const log_record&) { throw 1; });
    log.log(log_level::error, "x", "y");
}

TEST(log, sink_is_called_by_one_thread_at_a_time) {
    kept_log kept;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 200; ++i)
                kept.log.log(log_level::error, "x", "y", {{"i", i}});
        });
    }
    for (auto& one : threads)
        one.join();
    EXPECT_EQ(kept.lines.size(), 800u);
}

/// In its own process. Another thread is in the sink while this one forks.
[[noreturn]] void log_in_a_child() {
    std::atomic<bool> is_writing{false}, may_go_on{false};
    default_logger().set_sink([&](const log_record&) {
        is_writing = true;
        is_writing.notify_all();
        may_go_on.wait(false);
    });
    std::thread other([] { log(log_level::error, "test", "of the parent"); });
    is_writing.wait(false);
    const pid_t child = ::fork();
    if (child == 0) {
        int lines = 0;
        default_logger().set_sink([&lines](const log_record&) { ++lines; });
        log(log_level::error, "test", "of the child");
        limited_log(log_level::error, "test", "of the child, too");
        ::_exit(lines == 2 ? 0 : 1);
    }
    int how = 1;
    (void)::waitpid(child, &how, 0);
    may_go_on = true;
    may_go_on.notify_all();
    other.join();
    std::_Exit(how == 0 ? 0 : 1);
}

TEST(log, a_child_of_fork_logs_whatever_another_thread_was_logging) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(log_in_a_child(), testing::ExitedWithCode(0), "");
}

/// In its own process. The child goes on in the sink, and then logs.
[[noreturn]] void log_after_a_sink_that_forks() {
    pid_t child = -1;
    int lines = 0;
    default_logger().set_sink([&](const log_record&) {
        if (++lines == 1) child = ::fork();
    });
    log(log_level::error, "test", "forks");
    log(log_level::error, "test", "after that");
    if (child == 0) ::_exit(lines == 2 ? 0 : 1);
    int how = 1;
    (void)::waitpid(child, &how, 0);
    std::_Exit(how == 0 && lines == 2 ? 0 : 1);
}

TEST(log, a_sink_may_fork) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(log_after_a_sink_that_forks(), testing::ExitedWithCode(0), "");
}

TEST(log, default_logger_reads_its_environment) {
    ASSERT_EQ(::setenv("AMALGAM_LOG", "fabric=trace,info", 1), 0);
    EXPECT_EXIT(
        {
            bool right = default_logger().enabled(log_level::trace, "fabric") &&
                         default_logger().enabled(log_level::info, "rpc") &&
                         !default_logger().enabled(log_level::debug, "rpc");
            std::exit(right ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
    ::unsetenv("AMALGAM_LOG");
}

TEST(log, default_logger_complains_once_about_a_wrong_environment) {
    ASSERT_EQ(::setenv("AMALGAM_LOG", "loud", 1), 0);
    EXPECT_EXIT(
        {
            log(log_level::info, "x", "dropped");
            std::exit(0);
        },
        testing::ExitedWithCode(0), "\"loud.* is not one of trace, debug");
    ::unsetenv("AMALGAM_LOG");
}

/// Writes a line when static objects are destroyed, after the logger's creator is gone.
struct last_words {
    ~last_words() { log(log_level::error, "test", "the last words"); }
};

TEST(log, default_logger_still_writes_when_static_objects_end) {
    EXPECT_EXIT(
        {
            static const last_words before_the_logger;
            static_cast<void>(default_logger());
            std::exit(0);
        },
        testing::ExitedWithCode(0), "error test: the last words");
}

}  // namespace
}  // namespace amalgam
