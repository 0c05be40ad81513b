#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/detail/recorder.hpp>
#include <amalgam/core/gathered_trace.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "conformance/slow_build.hpp"
#include "core/trace/chrome_events.hpp"
#include "core/trace/clocks.hpp"
#include "core/trace/file_format.hpp"
#include "core/trace/recorded_file.hpp"
#include "temp_folder.hpp"

// A process asks the environment once. So each test records in children of fork(), each of which
// begins anew.

namespace amalgam {
namespace {

using namespace detail;

template <typename Work>
void in_child(Work work) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        work();
        ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int how = 0;
    ASSERT_EQ(::waitpid(child, &how, 0), child);
    ASSERT_EQ(how, 0);
}

template <typename Work>
void record_in_child(const temp_folder& folder, const char* mib, Work work) {
    in_child([&] {
        ::setenv("AMALGAM_TRACE", folder.path().c_str(), 1);
        ::setenv("AMALGAM_TRACE_MIB", mib, 1);
        ASSERT_TRUE(start_recording());
        work();
    });
}

gathered_trace gather(const temp_folder& folder, nlohmann::json& events) {
    const std::string file = folder.with("out.json");
    const gathered_trace told = write_chrome_trace(std::vector{folder.path()}, file);
    events = nlohmann::json::parse(std::ifstream(file))["traceEvents"];
    return told;
}

span_record span(span_kind kind, std::uint64_t begin, std::uint64_t middle, std::uint64_t end,
                 unsigned char id) {
    span_record made{.kind = kind, .begin = begin, .middle = middle, .end = end};
    made.id.fill(std::byte{id});
    made.trace.fill(std::byte{id});
    made.name = trace_text("sum");
    return made;
}

TEST(recorder, nothing_is_recorded_unless_the_environment_says_so) {
    in_child([] {
        ::unsetenv("AMALGAM_TRACE");
        EXPECT_FALSE(start_recording());
        EXPECT_FALSE(recording());
        EXPECT_FALSE(sample_new_trace());
        EXPECT_EQ(trace_text("sum"), 0u);
        record_span({});
        record_mark("restart", "");
    });
}

TEST(recorder, what_it_logs_may_start_it_again) {
    in_child([] {
        ::setenv("AMALGAM_TRACE", "/no such folder", 1);
        int lines = 0;
        default_logger().set_sink([&lines](const log_record&) {
            ++lines;
            EXPECT_FALSE(start_recording());  // As an engine that the sink makes.
        });
        EXPECT_FALSE(start_recording());
        EXPECT_EQ(lines, 1);
    });
    const temp_folder folder;
    in_child([&folder] {
        ::setenv("AMALGAM_TRACE", folder.path().c_str(), 1);
        ::setenv("AMALGAM_TRACE_MIB", "many", 1);
        ::setenv("AMALGAM_TRACE_RATE", "often", 1);
        int lines = 0;
        default_logger().set_sink([&lines](const log_record&) {
            ++lines;
            EXPECT_TRUE(start_recording());
        });
        EXPECT_TRUE(start_recording());
        EXPECT_EQ(lines, 2);
    });
}

TEST(recorder, every_record_of_every_thread_is_read_or_counted_as_dropped) {
    constexpr unsigned threads = 4;
    constexpr unsigned each = 20'000;
    for (const char* mib : {"64", "2"}) {
        const temp_folder folder;
        record_in_child(folder, mib, [] {
            std::vector<std::thread> all;
            for (unsigned t = 0; t < threads; ++t) {
                all.emplace_back([] {
                    for (unsigned i = 0; i < each; ++i)
                        record_span({.begin = i + 1, .end = i + 2});
                });
            }
            for (std::thread& one : all)
                one.join();
        });
        nlohmann::json events;
        const gathered_trace told = gather(folder, events);
        ASSERT_EQ(told.processes.size(), 1u);
        const auto slices = std::count_if(events.begin(), events.end(),
                                          [](const auto& event) { return event["ph"] == "X"; });
        EXPECT_EQ(static_cast<std::uint64_t>(slices) + told.processes[0].dropped, threads * each);
        EXPECT_EQ(told.processes[0].dropped != 0, std::string(mib) == "2");
    }
}

TEST(recorder, threads_that_end_leave_their_room_to_others) {
    const temp_folder folder;
    record_in_child(folder, "1", [] {  // Four chunks.
        for (int i = 0; i < 100; ++i)
            std::thread([] { record_mark("restart", "group b"); }).join();
    });
    nlohmann::json events;
    const gathered_trace told = gather(folder, events);
    EXPECT_EQ(told.processes.at(0).dropped, 0u);
    EXPECT_EQ(told.processes.at(0).unnamed, 0u);
    const auto marks = std::count_if(events.begin(), events.end(), [](const auto& event) {
        return event["ph"] == "i" && event["name"] == "restart" &&
               event["args"]["what"] == "group b";
    });
    EXPECT_EQ(marks, 100);
}

TEST(recorder, texts_are_found_again_and_more_than_fit_are_left_out) {
    const temp_folder folder;
    record_in_child(folder, "1", [] {
        const std::uint32_t sum = trace_text("sum");
        EXPECT_NE(sum, 0u);
        EXPECT_EQ(trace_text("sum"), sum);
        EXPECT_NE(trace_text("sub"), sum);
        EXPECT_EQ(trace_text(std::string(500, 'x')), trace_text(std::string(112, 'x')));
        bool full = false;
        for (int i = 0; i < 10'000; ++i)
            full = trace_text(std::to_string(i)) == 0 || full;
        EXPECT_TRUE(full);
        EXPECT_EQ(trace_text("sum"), sum);
        record_span({.begin = 1, .end = 2});
    });
    nlohmann::json events;
    const std::uint64_t unnamed = gather(folder, events).processes.at(0).unnamed;
    EXPECT_GE(unnamed, 10'000u - trace_texts);
    EXPECT_LT(unnamed, 10'000u);
    const auto labels = std::find_if(events.begin(), events.end(), [](const auto& event) {
        return event["name"] == "process_labels";
    });
    ASSERT_NE(labels, events.end());
    EXPECT_EQ((*labels)["args"]["labels"], fmt::format("{} names without room", unnamed));
}

/// The file of the process that recorded last.
std::string file_in(const temp_folder& folder) {
    std::string found;
    for (const auto& each : std::filesystem::directory_iterator(folder.path())) {
        if (each.path().extension() == ".amtrace") found = each.path().string();
    }
    return found;
}

TEST(recorder, clocks_of_two_hosts_are_aligned_by_the_shortest_round_trip) {
    constexpr std::uint64_t ms = 1'000'000;
    const temp_folder folder;
    record_in_child(folder, "1", [] {
        record_span(span(span_kind::call, 1000 * ms, 1001 * ms, 1010 * ms, 1));
        record_span(span(span_kind::call, 2000 * ms, 2000 * ms, 2100 * ms, 2));
    });
    // The other host's clock is 5 s ahead. One way of the second call took much longer.
    const temp_folder other;
    record_in_child(other, "1", [] {
        record_span(span(span_kind::handler, 6003 * ms, 6004 * ms, 6008 * ms, 1));
        record_span(span(span_kind::handler, 7090 * ms, 7090 * ms, 7095 * ms, 2));
    });
    {
        std::fstream file(file_in(other), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(offsetof(trace_file_header, boot));
        file << "another boot";
    }
    const std::vector<std::string> both{folder.path(), other.path()};
    const std::string out = folder.with("out.json");
    const gathered_trace told = write_chrome_trace(both, out);
    ASSERT_EQ(told.processes.size(), 2u);
    // 1001 to 6003 and 6008 to 1010: 5002 there, 4998 back.
    EXPECT_EQ(told.processes[1].clock_offset, std::chrono::milliseconds(-5000));
    EXPECT_EQ(told.processes[1].clock_error, std::chrono::milliseconds(2));
    EXPECT_EQ(told.processes[0].clock_offset.count(), 0);
    EXPECT_EQ(told.processes[0].clock_error.count(), 0);
}

TEST(recorder, hosts_without_a_call_between_them_have_their_wall_clocks) {
    const temp_folder folder;
    record_in_child(folder, "1", [] { record_span({.begin = 1, .end = 2}); });
    const std::string first = file_in(folder);
    const temp_folder other;
    record_in_child(other, "1", [] { record_span({.begin = 1, .end = 2}); });
    {
        std::fstream file(file_in(other), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(offsetof(trace_file_header, boot));
        file << "another boot";
    }
    const std::vector<std::string> both{folder.path(), other.path()};
    const gathered_trace told = write_chrome_trace(both, folder.with("out.json"));
    ASSERT_EQ(told.processes.size(), 2u);
    EXPECT_LT(told.processes[1].clock_error.count(), 0);
    EXPECT_LT(std::chrono::abs(told.processes[1].clock_offset), std::chrono::seconds(60));
}

TEST(recorder, damaged_files_are_read_as_far_as_they_go) {
    const temp_folder folder;
    record_in_child(folder, "1", [] {
        for (int i = 0; i < 100; ++i)
            record_span(span(span_kind::call, 1, 2, 3, 1));
    });
    const std::string path = file_in(folder);
    std::ifstream in(path, std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), {});
    in.close();
    unsigned state = 12345;
    for (int round = 0; round < (conformance::slow_build ? 40 : 200); ++round) {
        std::string damaged = whole;
        for (int i = 0; i < 40; ++i) {
            state = state * 1664525u + 1013904223u;
            // In the header and the first records, but for the magic number.
            const std::size_t at = 8 + state % 20'000;
            const std::size_t place =
                at < trace_header_bytes ? at : at - trace_header_bytes + trace_chunks_at;
            damaged[place] = static_cast<char>(state >> 24);
        }
        if (round % 4 == 0) damaged.resize(trace_chunks_at + state % trace_chunk_bytes);
        std::ofstream(path, std::ios::binary) << damaged;
        nlohmann::json events;
        gather(folder, events);
    }
}

TEST(recorder, a_file_that_is_cut_off_while_it_is_read_ends_there) {
    const temp_folder folder;
    record_in_child(folder, "4", [] {
        for (int i = 0; i < 10'000; ++i)  // More than three chunks.
            record_span(span(span_kind::call, 1, 2, 3, 1));
    });
    std::string why;
    const auto file = recorded_file::open(file_in(folder), why);
    ASSERT_NE(file, nullptr) << why;
    int records = 0;
    file->for_each([&](const trace_record_head&, const char*) {
        if (++records == 1)
            std::filesystem::resize_file(file_in(folder), trace_chunks_at + trace_chunk_bytes);
    });
    EXPECT_GT(records, 2'000);
    EXPECT_LT(records, 3'000);
    std::filesystem::resize_file(file_in(folder), 0);
    file->for_each([&](const trace_record_head&, const char*) { ++records; });
    EXPECT_LT(records, 3'000);
    file->read_texts();
    EXPECT_EQ(file->text(1), "");
}

TEST(recorder, several_threads_write_the_same_file_and_the_last_to_end_has_it) {
    const temp_folder folder;
    record_in_child(folder, "1", [] { record_mark("restart", ""); });
    const std::string file = folder.with("out.json");
    std::vector<std::thread> all;
    for (int t = 0; t < 4; ++t) {
        all.emplace_back([&] {
            for (int i = 0; i < 100; ++i)
                EXPECT_NO_THROW(write_chrome_trace(std::vector{folder.path()}, file));
        });
    }
    for (std::thread& each : all)
        each.join();
    EXPECT_FALSE(nlohmann::json::parse(std::ifstream(file))["traceEvents"].empty());
    const std::filesystem::directory_iterator left(folder.path());
    EXPECT_EQ(std::distance(begin(left), end(left)), 2) << "nothing but the two files";
}

TEST(recorder, names_that_are_new_while_a_trace_is_written_are_in_it) {
    constexpr int names = 1000;
    const temp_folder folder;
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const unique_fd begun(ends[0]);
    unique_fd begins(ends[1]);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        ::setenv("AMALGAM_TRACE", folder.path().c_str(), 1);
        ::setenv("AMALGAM_TRACE_MIB", "1", 1);
        if (!start_recording()) ::_exit(1);
        for (int i = 0; i < names; ++i) {
            record_mark(fmt::format("name {}", i), "");
            if (i == 0 && ::write(begins.get(), "", 1) != 1) ::_exit(1);
            for (int k = 0; k < 3000; ++k)  // So that they are spread over many traces.
                trace_time();
        }
        ::_exit(0);
    }
    begins.reset();
    char byte = 0;
    ASSERT_EQ(::read(begun.get(), &byte, 1), 1);
    int how = 0;
    for (bool ended = false; !ended;) {
        ended = ::waitpid(child, &how, WNOHANG) == child;
        nlohmann::json events;
        gather(folder, events);
        std::set<std::string> seen;
        for (const auto& event : events)
            if (event["ph"] == "i") seen.insert(event["name"]);
        EXPECT_EQ(seen.count(""), 0u);
        EXPECT_TRUE(!ended || seen.size() == names) << seen.size();
    }
    EXPECT_EQ(how, 0);
}

TEST(recorder, many_files_of_one_pid_have_numbers_of_their_own) {
    const temp_folder folder;
    record_in_child(folder, "1", [] { record_mark("here", ""); });
    const std::string first = file_in(folder);
    for (int i = 0; i < 20; ++i)
        std::filesystem::copy_file(first, folder.with(fmt::format("1-{}.amtrace", i)));
    nlohmann::json events;
    EXPECT_EQ(gather(folder, events).processes.size(), 21u);
    std::set<int> pids;
    for (const auto& each : events)
        pids.insert(each["pid"].get<int>());
    EXPECT_EQ(pids.size(), 21u);
}

TEST(clocks, offsets_over_any_number_of_lying_hosts_stay_within_what_can_be_computed) {
    constexpr std::size_t hosts = 100;
    std::vector<host_clock> clocks(hosts);
    clock_differences all;
    for (std::size_t i = 0; i + 1 < hosts; ++i)
        all[{i, i + 1}] = {.offset = std::int64_t{1} << 60, .error = std::int64_t{1} << 60};
    align_clocks(clocks, all);
    EXPECT_EQ(clocks[1].offset, std::int64_t{1} << 60);
    EXPECT_EQ(clocks[hosts - 1].offset, most_offset);
    EXPECT_EQ(clocks[hosts - 1].error, most_offset);
}

TEST(clocks, a_host_is_compared_over_the_hosts_that_are_wrong_the_least) {
    std::vector<host_clock> clocks(3);
    const clock_differences all{{{0, 2}, {.offset = 100, .error = 50}},
                                {{0, 1}, {.offset = 10, .error = 3}},
                                {{2, 1}, {.offset = -10, .error = 4}}};
    align_clocks(clocks, all);
    EXPECT_EQ(clocks[2].offset, 20);
    EXPECT_EQ(clocks[2].error, 7);
}

TEST(chrome_trace, nothing_is_left_of_a_trace_whose_writer_was_killed) {
    const temp_folder folder;
    const pid_t child = ::fork();
    if (child == 0) {
        trace_output out(folder.with("out.json"));
        out.add("half of it");
        ::raise(SIGKILL);
    }
    int how = 0;
    ASSERT_EQ(::waitpid(child, &how, 0), child);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(recorder, what_is_no_recorded_file_is_told_and_never_waited_for) {
    const temp_folder folder;
    record_in_child(folder, "1", [] { record_mark("here", ""); });
    // Says it has all chunks there can be, and is a hole of 4 TiB.
    const std::string holes = folder.with("2-2.amtrace");
    std::filesystem::copy_file(file_in(folder), holes);
    if (::truncate(holes.c_str(), off_t{1} << 42) != 0) GTEST_SKIP() << "no files of holes here";
    {
        std::fstream file(holes, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(offsetof(trace_file_header, chunks));
        file << "\xff\xff\xff\xff";
    }
    ASSERT_EQ(::mkfifo(folder.with("3-3.amtrace").c_str(), 0600), 0);
    std::filesystem::create_directory(folder.with("4-4.amtrace"));
    std::filesystem::create_symlink("/dev/zero", folder.with("5-5.amtrace"));
    nlohmann::json events;
    const gathered_trace told = gather(folder, events);
    EXPECT_EQ(told.processes.size(), 2u);
    ASSERT_EQ(told.unreadable.size(), 3u);
    for (const std::string& each : told.unreadable)
        EXPECT_NE(each.find("no regular file"), std::string::npos) << each;
}

TEST(recorder, a_descriptor_that_the_program_has_closed_and_used_again_is_not_written_to) {
    for (const bool removed : {false, true}) {
        const temp_folder folder;
        const std::string precious = folder.with("precious", "mine");
        record_in_child(folder, "1", [&] {
            record_mark("before", "");
            if (removed) std::filesystem::remove(file_in(folder));
            for (int i = 3; i < 100; ++i)
                ::close(i);
            // All of its numbers are this file's now.
            while (::open(precious.c_str(), O_RDWR) < 100) {
            }
            for (int i = 0; i < 4000; ++i)  // More than a chunk.
                record_span(span(span_kind::call, 1, 2, 3, 1));
        });
        EXPECT_EQ(std::filesystem::file_size(precious), 4u);
        if (removed) continue;
        nlohmann::json events;
        const gathered_trace told = gather(folder, events);
        EXPECT_EQ(told.processes.at(0).dropped, 0u);
        EXPECT_GT(told.processes.at(0).records, 4000u);
    }
}

TEST(recorder, a_child_of_fork_does_not_write_into_its_parents_file) {
    const temp_folder folder;
    record_in_child(folder, "1", [] {
        record_mark("parent", "");
        in_child([] {
            EXPECT_FALSE(recording());
            record_mark("lost", "");
            EXPECT_TRUE(start_recording());
            record_mark("child", "");
        });
        record_mark("parent", "");
    });
    nlohmann::json events;
    EXPECT_EQ(gather(folder, events).processes.size(), 2u);
    const auto count = [&](const char* name) {
        return std::count_if(events.begin(), events.end(), [&](const auto& event) {
            return event["ph"] == "i" && event["name"] == name;
        });
    };
    EXPECT_EQ(count("parent"), 2);
    EXPECT_EQ(count("child"), 1);
    EXPECT_EQ(count("lost"), 0);
}

}  // namespace
}  // namespace amalgam
