// A small service of blobs, as services on Thallium look once they are moved:
// docs/guide/from_mochi.md shows parts of it.
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk.hpp>
#include <amalgam/rpc.hpp>
#include <amalgam/tasks.hpp>

#include "bulk/bulk_testing.hpp"
#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

/// Ranges of a blob: offset and size of each.
using blob_ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

/// The part of `all` that has the bytes [at, at + bytes) of their concatenation.
blob_ranges ranges_from(const blob_ranges& all, std::uint64_t at, std::uint64_t bytes) {
    blob_ranges found;
    for (const auto& [offset, size] : all) {
        const std::uint64_t skipped = std::min(at, size);
        const std::uint64_t taken = std::min(size - skipped, bytes);
        if (taken > 0) found.emplace_back(offset + skipped, taken);
        at -= skipped;
        bytes -= taken;
    }
    return found;
}

class blob_service {
public:
    blob_service(engine& where, std::uint16_t id) : buffers_(where) {
        const procedure_options here{.provider = id};
        where.define(
            "blob.create", [this](std::uint64_t bytes) { return create(bytes); }, here);
        where.define(
            "blob.put",
            [this](std::uint64_t blob, const blob_ranges& to, std::string_view bytes) {
                const std::lock_guard hold(busy_);
                copy_in(segments_of(blob, to), as_bytes_of(bytes));
            },
            here);
        where.define(
            "blob.write",
            [this](std::uint64_t blob, const blob_ranges& to, const bulk& from) {
                const std::lock_guard hold(busy_);
                from.pull(segments_of(blob, to));
            },
            here);
        where.define(
            "blob.read",
            [this](std::uint64_t blob, const blob_ranges& from, const bulk& into) {
                const std::lock_guard hold(busy_);
                into.push(segments_of(blob, from));
            },
            here);
        where.define(
            "blob.write_by_chunks",
            [this](std::uint64_t blob, const blob_ranges& to, const bulk& from) {
                const std::lock_guard hold(busy_);
                from.pull_pipelined(
                    4096, 4,
                    [&](const_bytes chunk, std::uint64_t at) {
                        copy_in(segments_of(blob, ranges_from(to, at, chunk.size())), chunk);
                    },
                    {.buffers = &buffers_});
            },
            here);
    }

private:
    std::uint64_t create(std::uint64_t bytes) {
        const std::lock_guard hold(busy_);
        blobs_.emplace_back(bytes);
        return blobs_.size() - 1;
    }
    std::vector<mutable_bytes> segments_of(std::uint64_t blob, const blob_ranges& ranges) {
        if (blob >= blobs_.size()) throw error(errc::not_found, "no blob " + std::to_string(blob));
        std::vector<mutable_bytes> found;
        for (const auto& [offset, size] : ranges) {
            const std::uint64_t has = blobs_[blob].size();
            if (offset > has || size > has - offset)
                throw error(errc::invalid, "past the end of blob " + std::to_string(blob));
            found.push_back(mutable_bytes(blobs_[blob]).subspan(offset, size));
        }
        return found;
    }
    static void copy_in(const std::vector<mutable_bytes>& to, const_bytes from) {
        for (const mutable_bytes each : to) {
            if (each.size() > from.size()) throw error(errc::invalid, "fewer bytes than ranges");
            std::copy_n(from.begin(), each.size(), each.begin());
            from = from.subspan(each.size());
        }
    }

    mutex busy_;  // Held while a transfer waits; other handlers of the stream run meanwhile.
    bulk_cache buffers_;
    std::vector<std::vector<std::byte>> blobs_;
};

/// A call in flight, and the memory that it shows to the server.
struct blob_call {
    exposed shown;  // Outlives the call: members are destroyed in reverse.
    future<void> done;
};

class blob_service_on : public testing::TestWithParam<const char*> {
protected:
    blob_service_on() {
        for (std::size_t i = 0; i < memory.size(); ++i)
            memory[i] = static_cast<std::byte>(i * 7 + i / 251);
    }
    std::vector<std::byte> read_back() {
        std::vector<std::byte> all(memory.size());
        const exposed shown = expose(client, all, access::write);
        read(blob, blob_ranges{{0, all.size()}}, shown.descriptor());
        return all;
    }
    template <typename Signature>
    bound_procedure<Signature> at(const char* name) {
        return client.procedure<Signature>(name).on(client.lookup(server.address()), 42);
    }
    using moving = void(std::uint64_t, blob_ranges, bulk);

    engine server{one_more(GetParam())}, client{one_more(GetParam())};
    blob_service serves{server, 42};
    std::vector<std::byte> memory = std::vector<std::byte>(200'000);
    bound_procedure<moving> write = at<moving>("blob.write"), read = at<moving>("blob.read");
    bound_procedure<moving> write_by_chunks = at<moving>("blob.write_by_chunks");
    std::uint64_t blob = at<std::uint64_t(std::uint64_t)>("blob.create")(memory.size());
};

INSTANTIATE_TEST_SUITE_P(loop, blob_service_on, testing::Values("loop://"));
INSTANTIATE_TEST_SUITE_P(shm, blob_service_on,
                         testing::ValuesIn(unless_thread_sanitizer({"shm://"})));
INSTANTIATE_TEST_SUITE_P(tcp, blob_service_on, testing::Values("tcp://127.0.0.1:0"));

TEST_P(blob_service_on, ranges_of_a_blob_are_filled_from_one_range_of_the_caller) {
    const exposed shown = expose(client, memory, access::read);
    write(blob, blob_ranges{{100'000, 100'000}, {0, 100'000}}, shown.descriptor());
    std::rotate(memory.begin(), memory.begin() + 100'000, memory.end());
    EXPECT_EQ(read_back(), memory);
}

TEST_P(blob_service_on, calls_in_flight_keep_the_memory_that_they_show) {
    std::vector<blob_call> calls;
    for (std::uint64_t part = 0; part < 4; ++part) {
        exposed shown =
            expose(client, std::span(memory).subspan(part * 50'000, 50'000), access::read);
        future<void> done =
            write.start(blob, blob_ranges{{part * 50'000, 50'000}}, shown.descriptor());
        calls.push_back({std::move(shown), std::move(done)});
    }
    for (blob_call& each : calls)
        each.done.get();
    EXPECT_EQ(read_back(), memory);
}

TEST_P(blob_service_on, chunks_go_through_cached_buffers_into_the_ranges) {
    const exposed shown = expose(client, memory, access::read);
    write_by_chunks(blob, blob_ranges{{150'001, 49'999}, {0, 150'001}}, shown.descriptor());
    std::rotate(memory.begin(), memory.begin() + 49'999, memory.end());
    EXPECT_EQ(read_back(), memory);
}

TEST_P(blob_service_on, small_values_are_borrowed_from_the_message) {
    at<void(std::uint64_t, blob_ranges, std::string)>("blob.put")(blob, {{3, 2}, {0, 3}}, "lohel");
    const std::vector<std::byte> found = read_back();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(found.data()), 5), "hello");
}

TEST_P(blob_service_on, failures_of_the_handler_reach_the_caller_with_code_and_text) {
    const exposed shown = expose(client, memory, access::read);
    for (const result<void>& how :
         {write.try_call(blob + 1, blob_ranges{{0, 1}}, shown.descriptor()),
          write_by_chunks.try_call(blob + 1, blob_ranges{{0, 1}}, shown.descriptor())}) {
        EXPECT_EQ(how.code(), errc::handler_failed);
        EXPECT_EQ(how.code().handler_code(), errc::not_found);
        EXPECT_NE(how.sentence().find("no blob 1"), std::string::npos) << how.sentence();
    }
    EXPECT_EQ(write.try_call(blob, blob_ranges{{1, memory.size()}}, shown.descriptor())
                  .code()
                  .handler_code(),
              errc::invalid);
}

}  // namespace
}  // namespace amalgam
