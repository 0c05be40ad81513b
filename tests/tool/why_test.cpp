// `amalgam why` as users see it: processes that hang in each other, and engines that lie.
#include <array>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/metrics.hpp>
#include <amalgam/rpc/wait_report.hpp>

#include "contains.hpp"
#include "tool/run_tool.hpp"

namespace amalgam {
namespace {

using tool_testing::amalgam_tool;
using tool_testing::outcome;

/// A process of hanging_program; ends with this.
class branch {
public:
    explicit branch(const char* name) {
        std::array<int, 2> in{}, out{};
        EXPECT_EQ(::pipe2(in.data(), O_CLOEXEC), 0);
        EXPECT_EQ(::pipe2(out.data(), O_CLOEXEC), 0);
        child_ = ::fork();
        if (child_ == 0) {
            ::dup2(in[0], STDIN_FILENO);
            ::dup2(out[1], STDOUT_FILENO);
            ::execl(AMALGAM_HANGING_PROGRAM, AMALGAM_HANGING_PROGRAM, name, nullptr);
            ::_exit(127);
        }
        ::close(in[0]);
        ::close(out[1]);
        input_ = unique_fd(in[1]);
        const unique_fd output(out[0]);
        for (char one = 0; ::read(output.get(), &one, 1) == 1 && one != '\n';)
            address += one;
        EXPECT_FALSE(address.empty());
    }
    ~branch() { end(); }
    branch(const branch&) = delete;
    branch& operator=(const branch&) = delete;

    void tell(const std::string& line) {
        const std::string whole = line + "\n";
        EXPECT_EQ(::write(input_.get(), whole.data(), whole.size()),
                  static_cast<ssize_t>(whole.size()));
    }
    void send(int signal) const { ::kill(child_, signal); }
    void end() {
        if (child_ == 0) return;
        send(SIGKILL);
        ::waitpid(child_, nullptr, 0);
        child_ = 0;
    }
    std::string process() const { return "(process " + std::to_string(child_) + ")"; }

    std::string address;

private:
    pid_t child_ = 0;
    unique_fd input_;
};

/// Asks until all has got as far as it gets.
outcome why(const std::string& arguments, const std::string& until) {
    for (;;) {
        outcome got = amalgam_tool("why " + arguments);
        if (contains(got.output, until)) return got;
    }
}

#define EXPECT_HAS(text, part) EXPECT_TRUE(contains(text, part)) << (text)

TEST(why, finds_a_deadlock_of_a_ult_with_a_handler_that_calls_it_back) {
    branch bank("bank"), till("till");
    bank.tell("ult " + till.address + " caller");
    const outcome got = why(bank.address, "deadlock over");
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_HAS(got.output, bank.address + " is \"bank\" " + bank.process() + " on ");
    EXPECT_HAS(got.output, "call of \"relay\" to " + till.address + ", for ");
    EXPECT_HAS(got.output, "in \"till\" " + till.process() + ": its handler, ULT ");
    EXPECT_HAS(got.output, "its handler, ULT ");
    EXPECT_HAS(got.output, ": it waits for the mutex that ULT \"teller\" holds, for ");
    EXPECT_HAS(got.output, "deadlock over 2 processes: ULT \"teller\" in \"bank\" " +
                               bank.process() +
                               " waits for the answer of \"relay\"; the handler of \"relay\" in "
                               "\"till\" " +
                               till.process() +
                               " waits for the answer of \"relay\"; the handler of \"relay\" in "
                               "\"bank\" " +
                               bank.process() +
                               " waits for the mutex that ULT \"teller\" holds. Unlock a mutex");
    const outcome other = why(till.address, "deadlock over");  // From the other end.
    EXPECT_EQ(other.code, 0) << other.output;
    EXPECT_HAS(other.output, "handler of \"relay\", called by ");
    EXPECT_HAS(other.output, "ULT \"teller\" in \"bank\"");

    const auto json = nlohmann::json::parse(amalgam_tool("why --json " + bank.address).output);
    ASSERT_EQ(json["chains"].size(), 1u) << json;
    EXPECT_EQ(json["chains"][0]["deadlock"], true);
    EXPECT_EQ(json["chains"][0]["cycle_from"], 0);
    EXPECT_EQ(json["chains"][0]["steps"].size(), 7u) << json;
    EXPECT_EQ(json["engines"].size(), 2u);
    EXPECT_EQ(json["engines"][0]["name"], "bank");
}

TEST(why, finds_a_deadlock_over_three_processes_that_begins_with_a_plain_thread) {
    if (::access("/proc/self/syscall", R_OK) != 0)
        GTEST_SKIP() << "this kernel does not say where the stacks of sleeping threads are";
    branch one("one"), two("two"), three("three");
    one.tell("thread " + two.address + " " + three.address + " " + one.address);
    const outcome got = why(one.address, "deadlock over");
    EXPECT_HAS(got.output, "asked 3 engines");
    EXPECT_HAS(got.output, "deadlock over 3 processes: thread ");
    EXPECT_HAS(got.output, " in \"two\" " + two.process());
    EXPECT_HAS(got.output, " in \"three\" " + three.process());
    EXPECT_HAS(got.output, " in \"one\" " + one.process() + " waits for the mutex that thread ");
    const outcome alone = amalgam_tool("why --engines 2 " + one.address);
    EXPECT_EQ(alone.code, 0) << alone.output;
    EXPECT_HAS(alone.output, "could not be asked: enough engines were asked; see --engines");
    EXPECT_FALSE(contains(alone.output, "deadlock")) << alone.output;
}

TEST(why, finds_a_deadlock_with_who_writes_what_a_shared_mutex_protects) {
    branch bank("bank"), till("till");
    bank.tell("write " + till.address + " caller ledger");
    const outcome got = why(bank.address, "deadlock over");
    EXPECT_HAS(got.output, ": it waits for the shared mutex that ULT \"writer\" holds, for ");
    EXPECT_HAS(got.output, "the handler of \"relay\" in \"bank\" " + bank.process() +
                               " waits for the shared mutex that ULT \"writer\" holds");
}

TEST(why, tells_how_many_read_what_another_would_write) {
    branch bank("bank");
    bank.tell("audit sleep");
    bank.tell("audit sleep");
    bank.tell("future " + bank.address + " entry");
    const outcome got = why(bank.address, ", which 2 readers hold, for ");
    EXPECT_HAS(got.output, ": it waits for shared mutex ");
    const auto json = nlohmann::json::parse(amalgam_tool("why --json " + bank.address).output);
    bool found = false;
    for (const auto& each : json["engines"][0]["units"])
        if (each["readers"] == 2) found = each["mutex"].is_string();
    EXPECT_TRUE(found) << json;
}

TEST(why, tells_with_which_mutex_a_handler_waits_for_a_condition) {
    branch bank("bank");
    bank.tell("future " + bank.address + " news");
    const outcome got =
        why(bank.address, "it waits for a condition variable that goes with mutex ");
    EXPECT_HAS(got.output, ", and nobody has notified it");
    EXPECT_HAS(got.output, ", for ");
}

TEST(why, tells_a_handler_that_sleeps_from_one_that_computes_and_one_that_left_its_answer) {
    branch bank("bank"), till("till");
    bank.tell("future " + till.address + " sleep");
    const outcome sleeps = why(bank.address, "it sleeps, for ");
    EXPECT_HAS(sleeps.output, "ULT \"clerk\" waits for it");
    EXPECT_HAS(sleeps.output, "in \"till\" " + till.process() + ": its handler, ULT ");
    bank.tell("future " + till.address + " later");
    why(bank.address, "has returned, and a responder of the program is still to answer");
    bank.tell("future " + till.address + " spin");
    const outcome spins = why(bank.address, "it runs, and has not let go of stream \"");
    EXPECT_HAS(spins.output, ": it computes, or blocks in a system call");
    EXPECT_FALSE(contains(spins.output, "deadlock")) << spins.output;
}

TEST(why, follows_streams_of_values_to_who_sends_or_reads_them) {
    branch bank("bank"), till("till"), shop("shop");
    bank.tell("read " + till.address);
    const outcome reads = why(bank.address, "it sleeps, for ");
    EXPECT_HAS(reads.output, "call of \"give\" to " + till.address);
    EXPECT_HAS(reads.output, "ULT \"reader\" waits for it");
    shop.tell("future " + bank.address);
    const outcome behind = why(shop.address, "it sleeps, for ");
    EXPECT_HAS(behind.output, "it waits for the mutex that ULT \"reader\" holds");
    EXPECT_HAS(behind.output,
               "it waits for the next value of its call of \"give\" to " + till.address);
}

TEST(why, says_that_a_handler_waits_for_its_caller_to_send_or_read_values) {
    branch bank("bank"), till("till");
    bank.tell("send " + till.address);
    // The call may be seen while its stream is still being set up.
    const outcome sends =
        why(bank.address, "who sends the stream has not sent the next value, and has not finished");
    EXPECT_HAS(sends.output, "it waits for the next value that its caller, ");
    branch shop("shop");
    shop.tell("unread " + till.address);
    const outcome unread = why(shop.address, "its caller to read what it has sent");
    EXPECT_HAS(unread.output, "it waits for: its caller to read what it has sent");
}

TEST(why, says_that_a_stopped_peer_does_not_answer_and_a_hogged_one) {
    branch bank("bank"), till("till");
    bank.tell("future " + till.address + " sleep");
    why(bank.address, "it sleeps, for ");
    till.send(SIGSTOP);
    const outcome got = amalgam_tool("why --timeout 1000 " + bank.address);
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_HAS(got.output, till.address + " does not answer: it is stopped, ");
    const outcome itself = amalgam_tool("why --timeout 200 " + till.address);
    EXPECT_EQ(itself.code, 1) << itself.output;
    EXPECT_HAS(itself.output, till.address + " does not answer within 200 ms: it is stopped, ");
    EXPECT_HAS(itself.output, ". Seen from outside: process ");
    EXPECT_HAS(itself.output, " is stopped, by a signal or a debugger; kill -CONT ");
    EXPECT_HAS(got.output, " is stopped, by a signal or a debugger; kill -CONT ");
    till.send(SIGCONT);
    why(bank.address, "it sleeps, for ");
    bank.tell("future " + till.address + " hog");
    why("--timeout 1000 " + bank.address,
        till.address + " does not answer: it is stopped, something holds its first");
    // Its first stream is called as the engine is.
    why("--timeout 300 " + till.address, "and its threads \"till");
}

TEST(why, of_a_peer_that_is_gone_no_call_is_open) {
    branch bank("bank");
    std::string gone;
    {
        branch till("till");
        gone = till.address;
        bank.tell("ult " + till.address + " sleep");
        why(bank.address, "it sleeps, for ");
    }
    const outcome got = why(bank.address, "nothing waits");
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_EQ(amalgam_tool("why --timeout 2000 " + gone).code, 1);
}

TEST(why, says_how_an_engine_would_offer_it) {
    engine silent("shm://");
    const outcome got = amalgam_tool("why " + silent.address());
    EXPECT_EQ(got.code, 1) << got.output;
    EXPECT_HAS(got.output,
               "does not say what it waits for; to let it, call "
               "am::offer_metrics(engine) there");
}

/// An engine that says this.
struct liar {
    wait_report says;
    engine here{"shm://"};

    liar() {
        says.engine = 1;
        here.define(detail::library_name{"amalgam.waits"}, [this](std::uint32_t) { return says; });
    }
    outcome ask(const std::string& more = "") {
        return amalgam_tool("why " + more + here.address());
    }
};

TEST(why, survives_an_engine_that_lies) {
    liar one;
    // Everything waits for itself or for what is not there, under the same ids and bad names.
    const std::string bad = "\x1b[2Jx\xff\n\xc2\x9b\x7f\xe2\x80\xae" + std::string(100'000, 'y');
    for (std::uint64_t i = 0; i < 3000; ++i) {
        open_call call;
        call.id = i % 7 + 1;
        call.procedure = call.peer = i < 2 ? bad : "tcp://127.0.0.1:1?credentials=/etc";
        call.answer = static_cast<peer_answer>(i % 9);
        call.engine = i % 3;
        call.handler = i % 5;
        call.unit = i % 11;
        one.says.calls.push_back(call);
        open_handler handler;
        handler.id = i % 5;
        handler.unit = i % 11;
        handler.caller = i < 2 ? bad : "x";
        one.says.handlers.push_back(handler);
        waiting_unit unit;
        unit.id = i % 11;
        unit.name = unit.waits_for = unit.stream = i < 2 ? bad : "mutex";
        unit.call = i % 13;
        unit.unit = i % 17;
        unit.state = static_cast<ult_state>(i % 250);
        unit.waited = std::chrono::nanoseconds(INT64_MIN + static_cast<std::int64_t>(i));
        unit.thread = static_cast<std::int32_t>(i % 2);
        one.says.units.push_back(unit);
    }
    one.says.name = one.says.host = bad;
    for (const char* how : {"", "--json ", "--engines 1 "}) {
        const outcome got = one.ask(how);
        EXPECT_EQ(got.code, 0) << got.output.substr(0, 1000);
        for (const char* order : {"\x1b", "\xc2\x9b", "\x7f", "\xe2\x80\xae"})
            EXPECT_EQ(got.output.find(order), std::string::npos) << how;
        EXPECT_LT(got.output.size(), 4'000'000u);
    }
}

TEST(why, of_a_thousand_that_wait_for_each_other_for_hundreds_of_calls_tells_some) {
    liar one;
    for (std::uint64_t i = 1; i <= 256; ++i) {
        open_handler handler;
        handler.id = i;
        handler.unit = 1;
        one.says.handlers.push_back(handler);
    }
    for (std::uint64_t i = 1; i <= 990; ++i) {
        waiting_unit unit;
        unit.id = i;
        unit.unit = i % 990 + 1;
        unit.state = ult_state::parked;
        unit.waits_for = "mutex";
        one.says.units.push_back(unit);
    }
    for (const char* how : {"", "--json "}) {
        const outcome got = one.ask(how);
        EXPECT_EQ(got.code, 0) << got.output.substr(0, 1000);
        EXPECT_HAS(got.output.substr(0, 1'000'000), "deadlock");
        EXPECT_HAS(got.output, "the chain is too long to be followed");
        EXPECT_LT(got.output.size(), 5'000'000u);
    }
}

TEST(why, follows_no_address_that_would_load_a_plug_in_or_lead_to_another_engine) {
    liar one, other;
    other.says.engine = 9;
    for (const std::string& each :
         {std::string("ucx+tcp://127.0.0.1:1"), std::string("tcp://127.0.0.1:1?credentials=x"),
          std::string("no address"), other.here.address()}) {
        open_call call;
        call.id = call.engine = call.handler = 2;
        call.answer = peer_answer::told;
        call.peer = each;
        one.says.calls.push_back(call);
        ++one.says.engine;
    }
    const outcome got = one.ask();
    EXPECT_EQ(got.code, 0) << got.output;
    EXPECT_HAS(got.output, "ucx+tcp://127.0.0.1:1 could not be asked: only addresses of tcp, ");
    EXPECT_HAS(got.output, "?credentials=x could not be asked: only addresses of tcp, ");
    EXPECT_HAS(got.output, "no address could not be asked: ");
    EXPECT_HAS(got.output, "another engine answers at that address");
}

TEST(why, gives_up_on_an_answer_that_is_too_large) {
    liar one;
    one.says.name = std::string(std::size_t{9} << 20, 'x');
    const outcome got = one.ask();
    EXPECT_EQ(got.code, 1) << got.output;
    EXPECT_LT(got.output.size(), 10'000u);
}

}  // namespace
}  // namespace amalgam
