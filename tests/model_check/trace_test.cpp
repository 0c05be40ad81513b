// core: what threads record in their chunks of a trace, and the table of its texts, against who
// reads the file meanwhile. Reading a file is modelled by loads in the order of the system calls.
#include <gtest/gtest.h>

#include "model_check/checker/checker.hpp"
// What a recorder is made of is known in this file only.
#include "core/trace/recorder.cpp"

namespace amalgam::model {
namespace {

using namespace detail;

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;

struct chunk {
    trace_chunk_header head{};
    std::array<char, 512> records{};
};

/// Of texts only what programs have used is made new.
trace_text_slot* empty_texts() {
    static std::array<trace_text_slot, trace_texts> all{};
    for (trace_text_slot& each : all) {
        if (each.hash.load() != 0) std::memset(static_cast<void*>(&each), 0, sizeof each);
    }
    return all.data();
}

/// A recorder with one chunk.
struct a_trace {
    a_trace() {
        of.header = &header;
        of.texts = empty_texts();
        current.store(&of);
    }
    ~a_trace() { current.store(nullptr); }

    /// A thread that has the chunk.
    void give_chunk(writer& to) {
        to.of_ = &of;
        to.at_ = &only.head;
    }
    /// A mark with the name `text`, as record_mark().
    void mark(writer& by, std::string_view text) {
        trace_mark_bytes out{};
        out.name = trace_text(text);
        by.write(of, {.bytes = 0, .kind = trace_mark, .what = 0, .thread = 0},
                 reinterpret_cast<const char*>(&out) + 8, sizeof out - 8);
    }
    /// As recorded_file::read_chunk(): checks what is complete so far.
    void read(std::string_view text) {
        const std::uint32_t used = only.head.used.load(relaxed);
        std::atomic_thread_fence(acquire);
        for (std::uint32_t at = 0; at < used;) {
            trace_mark_bytes one{};
            require(used - at >= sizeof one.head, "half a record");
            std::memcpy(&one.head, only.records.data() + at, sizeof one.head);
            require(one.head.bytes >= sizeof one.head && one.head.bytes <= used - at,
                    "half a record");
            if (one.head.kind == trace_mark) {
                std::memcpy(static_cast<void*>(&one), only.records.data() + at, sizeof one);
                check_text(one.name, text);
            }
            at += one.head.bytes;
        }
    }
    /// As recorded_file::read_texts(), after the records that name it.
    void check_text(std::uint32_t index, std::string_view text) {
        const trace_text_slot& slot = of.texts[index];
        const std::uint32_t length = slot.length.load(relaxed);
        require(length == text.size() + 1 && std::memcmp(slot.text, text.data(), text.size()) == 0,
                "the text is not there");
    }

    trace_file_header header{};
    chunk only;
    recorder of;
};

using fault = std::function<void(execution&, a_trace&)>;

a_trace& make_trace(execution& run, const fault& weaken) {
    auto& made = run.make<a_trace>();
    run.name(&made.only.head.used, "used");
    run.name(&made.of.lock, "lock");
    if (weaken) weaken(run, made);
    return made;
}

/// A thread records, and ends. Another goes on in its chunk, if that is free by then.
result of_chunk(const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        a_trace& trace = make_trace(run, weaken);
        run.thread([&trace] {
            writer mine;
            trace.give_chunk(mine);
            trace.mark(mine, "one");
        });
        run.thread([&trace] {
            writer mine;
            trace.mark(mine, "one");
        });
        run.thread([&trace] { trace.read("one"); });
    });
}

/// Two threads record the same text at once.
result of_text(const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        a_trace& trace = make_trace(run, weaken);
        run.thread([] { trace_text("one"); });
        run.thread([&trace] {
            writer mine;
            trace.give_chunk(mine);
            trace.mark(mine, "one");
        });
        run.thread([&trace] { trace.read("one"); });
    });
}

TEST(trace_model, whoever_reads_a_trace_sees_whole_records_with_their_texts) {
    for (const result& found : {of_chunk(), of_text()}) {
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
    }
}

TEST(trace_model, weaker_orders_are_found) {
    EXPECT_NE(of_chunk([](execution& run, a_trace& trace) {
                  run.weaken(trace.only.head.used, act::store, relaxed);
              }).failure,
              "");
    EXPECT_NE(of_chunk([](execution& run, a_trace& trace) {
                  run.weaken_at(&trace.of.lock, act::change, relaxed);
              }).failure,
              "");
    for (const act what : {act::load, act::store}) {
        EXPECT_NE(of_text([what](execution& run, a_trace& trace) {
                      for (std::size_t i = 0; i < trace_texts; ++i)
                          run.weaken(trace.of.texts[i].length, what, relaxed);
                  }).failure,
                  "");
    }
}

}  // namespace
}  // namespace amalgam::model
