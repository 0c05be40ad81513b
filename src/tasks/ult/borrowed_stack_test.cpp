#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

struct borrowed_stack : testing::Test {
    execution_stream stream{execution_stream_options{.driven = true}};
    std::vector<std::byte> memory = std::vector<std::byte>(256 * 1024);

    bool has(const void* address) const {
        const auto* const at = static_cast<const std::byte*>(address);
        return at >= memory.data() && at < memory.data() + memory.size();
    }
    static std::string refusal(const std::function<void()>& call) {
        try {
            call();
        } catch (const error& why) {
            EXPECT_EQ(why.code().code, errc::invalid);
            return why.what();
        }
        return "none";
    }
};

TEST_F(borrowed_stack, is_where_the_ult_runs_at_any_alignment_and_size) {
    for (std::size_t off = 0; off < 130; off += 13) {
        const std::size_t bytes = memory.size() - 2 * off;
        bool inside = false;
        ult one = spawn(stream,
                        [&] {
                            std::array<volatile char, 1000> local;
                            local[0] = 1;
                            this_task::yield();
                            inside = has(const_cast<char*>(&local[0])) && local[0] == 1;
                        },
                        {.stack = std::span(memory).subspan(off, bytes)});
        EXPECT_LT(one.stack_bytes(), bytes);
        EXPECT_GT(one.stack_bytes(), bytes - 4096);
        stream.run_ready();
        one.join();
#if !defined(__SANITIZE_ADDRESS__)  // which may keep locals elsewhere
        EXPECT_TRUE(inside);
#endif
    }
    EXPECT_EQ(stream.main_pool().ults(), 0u);
}

TEST_F(borrowed_stack, is_the_callers_again_after_join) {
    ult one = spawn(stream, [] {}, {.name = "borrows", .stack = memory});
    stream.run_ready();
    one.join();
    std::fill(memory.begin(), memory.end(), std::byte{0xff});
    for (const ult_info& each : list_ults())
        EXPECT_NE(each.name, "borrows");
    int ran = 0;
    ult other = spawn(stream, [&] { ++ran; }, {.stack = memory});
    stream.run_ready();
    other.join();
    std::vector<std::byte>().swap(memory);
    post(stream, [&] { ++ran; });
    stream.run_ready();
    EXPECT_EQ(ran, 2);
}

TEST_F(borrowed_stack, is_kept_by_a_revived_ult) {
    bool inside = false;
    ult one = spawn(stream, [] {}, {.stack = memory});
    stream.run_ready();
    one.revive(stream, [&] {
        volatile char local = 1;
        inside = has(const_cast<char*>(&local));
    });
    stream.run_ready();
    one.join();
#if !defined(__SANITIZE_ADDRESS__)
    EXPECT_TRUE(inside);
#endif
}

TEST_F(borrowed_stack, of_the_default_size_is_not_taken_for_a_pooled_one) {
    std::vector<std::byte> exact(256 * 1024 + 4096);
    for (std::size_t more = 0; more < 4096; more += 64) {
        ult one = spawn(stream, [] {}, {.stack = std::span(exact).first(256 * 1024 + more)});
        stream.run_ready();
        one.join();
    }
    exact = {};
    for (int i = 0; i < 10; ++i)
        post(stream, [] { this_task::yield(); });
    stream.run_ready();
}

TEST_F(borrowed_stack, bad_use_is_refused_with_a_reason) {
    const std::span all(memory);
    EXPECT_NE(refusal([&] {
                  spawn(stream, [] {}, {.stack = all.first(20479)});
              }).find("too small, expected at least 20480"),
              std::string::npos);
    EXPECT_NE(refusal([&] {
                  spawn(stream, [] {}, {.stack_bytes = 65536, .stack = all});
              }).find("leave one of both"),
              std::string::npos);
    EXPECT_NE(refusal([&] { post(stream, [] {}, {.stack = all}); }).find("use spawn()"),
              std::string::npos);
    std::byte* const nothing = nullptr;
    EXPECT_NE(refusal([&] {
                  spawn(stream, [] {}, {.stack = std::span(nothing, 65536)});
              }).find("at a null pointer"),
              std::string::npos);
    EXPECT_EQ(stream.main_pool().ults(), 0u);
}

}  // namespace
}  // namespace amalgam
