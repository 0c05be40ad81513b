// How well a transfer overlaps with the work on it. A client sends 256 MiB of its memory to a
// server that writes them to a new file, chunk by chunk. The result is relative to the slower of
// the two halves, measured alternately with it: the same transfer without writing, and the same
// writes of bytes that are already there.
//   pipelined_write shm|tcp [DIRECTORY]    the file's directory; default: memory, /dev/shm
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/rpc/engine.hpp>

#include "perf/measurement.hpp"
#include "perf/pair.hpp"

namespace {

using namespace amalgam;

constexpr std::uint64_t all_bytes = std::uint64_t{256} << 20;
constexpr std::size_t chunk_bytes = std::size_t{1} << 20;
constexpr std::size_t chunks_in_flight = 4;
constexpr int rounds = 5;

/// A temporary file, deleted with this object and with the process.
class scratch_file {
public:
    explicit scratch_file(const std::string& directory) {
        std::string name = directory + "/amalgam-bench.XXXXXX";
        fd_.reset(::mkostemp(name.data(), O_CLOEXEC));
        if (!fd_ || ::unlink(name.c_str()) != 0)
            throw error(status{errc::denied, errno},
                        "cannot create a file in \"" + directory + "\" (" + std::strerror(errno) +
                            "), expected a directory to write to; example: /dev/shm");
    }
    /// Makes it like new.
    void empty() const {
        if (::ftruncate(fd_.get(), 0) != 0) fail();
    }
    void write(const_bytes bytes, std::uint64_t at) const {
        while (!bytes.empty()) {
            const ssize_t done =
                ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) fail();
            bytes = bytes.subspan(static_cast<std::size_t>(done));
            at += static_cast<std::uint64_t>(done);
        }
    }

private:
    [[noreturn]] static void fail() {
        throw error(status{errc::no_memory, errno}, std::string("the file cannot be written (") +
                                                        std::strerror(errno) +
                                                        "), expected room for 256 MiB");
    }
    unique_fd fd_;
};

/// Bytes per second of `once()`, which moves all of them.
template <typename Once>
double rate_of(Once&& once) {
    const auto begin = perf::clock_type::now();
    once();
    return static_cast<double>(all_bytes) / perf::seconds_since(begin);
}

/// The network has its own stream, so that it continues during a write.
engine_options two_streams() {
    engine_options all;
    all.name = "server";
    all.streams = {{.name = "net"}, {.name = "disk", .pools = {"disk"}}};
    all.pools = {{.name = "disk"}};
    all.handlers = "disk";
    return all;
}

void serve(const std::string& uri, const std::string& directory, perf::channel& talk) {
    const scratch_file file(directory);
    // A single processor would serialize them: the network's stream shares the first with the
    // client, which has little to do, and the disk's has the second.
    perf::pin_to_processor(0);
    engine server(uri, two_streams());
    server.run([] { perf::pin_to_processor(1); });
    bulk_cache buffers(server);
    const pipeline_options how{.buffers = &buffers};
    server.define("wire", [&](const bulk& from) {
        return rate_of([&] {
            from.pull_pipelined(
                chunk_bytes, chunks_in_flight, [](const_bytes) {}, how);
        });
    });
    server.define("disk", [&] {
        file.empty();
        std::vector<bulk_buffer> chunks;
        for (std::size_t i = 0; i < chunks_in_flight; ++i)
            chunks.push_back(buffers.take(chunk_bytes));
        return rate_of([&] {
            for (std::uint64_t i = 0; i * chunk_bytes < all_bytes; ++i)
                file.write(chunks[i % chunks_in_flight].bytes(), i * chunk_bytes);
        });
    });
    server.define("both", [&](const bulk& from) {
        file.empty();
        return rate_of([&] {
            from.pull_pipelined(
                chunk_bytes, chunks_in_flight,
                [&](const_bytes chunk, std::uint64_t at) { file.write(chunk, at); }, how);
        });
    });
    talk.write_line(server.address());
    talk.read_line();
}

double median(std::vector<double> all) {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    return *middle;
}

void measure(const std::string& uri, const std::string& directory) {
    perf::forked_peer peer([&](perf::channel& talk) { serve(uri, directory, talk); });
    const std::string address = peer.talk().read_line();
    engine client(uri, {.name = "client"});
    const auto there = client.lookup(address);
    const std::vector<std::byte> memory(all_bytes, std::byte{0x5a});
    const exposed shown = expose(client, memory);
    const auto wire = client.procedure<double(const bulk&)>("wire").on(there);
    const auto disk = client.procedure<double()>("disk").on(there);
    const auto both = client.procedure<double(const bulk&)>("both").on(there);

    std::vector<double> of_wire, of_disk, of_both;
    both(shown);  // Warm-up, for buffers and pages; not counted.
    for (int i = 0; i < rounds; ++i) {
        of_wire.push_back(wire(shown));
        of_disk.push_back(disk());
        of_both.push_back(both(shown));
    }
    const double slower = std::min(median(of_wire), median(of_disk));
    std::printf(
        "{\"test\": \"pipelined-write\", \"uri\": \"%s\", \"wire_bytes_per_s\": %.6g, "
        "\"disk_bytes_per_s\": %.6g, \"bytes_per_s\": %.6g, \"value\": %.6g}\n",
        uri.c_str(), median(of_wire), median(of_disk), median(of_both), median(of_both) / slower);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view over = argc == 2 || argc == 3 ? argv[1] : "";
    if (over != "shm" && over != "tcp") {
        std::fprintf(stderr, "usage: %s shm|tcp [DIRECTORY]\n", argv[0]);
        return 2;
    }
    ::alarm(100);  // In case anything hangs: the server dies with this process.
    try {
        measure(over == "shm" ? "shm://" : "tcp://127.0.0.1:0", argc == 3 ? argv[2] : "/dev/shm");
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}
