#include "server.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <amalgam/bulk.hpp>
#include <amalgam/rpc.hpp>
#include <amalgam/tasks.hpp>

#include "open_files.hpp"
#include "protocol.hpp"

namespace remote_write {
namespace {

/// A client slower than 1 MiB/s loses its transfer: it would block others.
std::chrono::seconds patience(std::uint64_t bytes) {
    return std::chrono::seconds(60 + (bytes >> 20));
}

/// State shared by the handlers.
class store {
public:
    store(am::engine& engine, const server_options& options)
        : files_(options.directory),
          turns_(options.transfers),
          buffers_(engine, {.max_bytes = options.transfers * chunks_in_flight * chunk_bytes}) {}

    opened_file open(const am::call_context& call, std::string_view name, open_mode mode) {
        const opened_file opened = files_.open(call.from(), name, mode);
        // If the client is already gone, its loss will not be reported again.
        if (call.canceled()) files_.close(call.from(), opened.handle);
        return opened;
    }

    /// While one chunk is written to the disk, the next ones are in flight.
    std::uint64_t write(const am::peer& client, std::uint64_t handle, std::uint64_t offset,
                        const am::bulk& from) {
        const auto file = files_.find(client, handle);
        file->check_mode(open_mode::replace);
        check_range(offset, from.bytes());
        const turn mine(turns_);
        from.pull_pipelined(
            chunk_bytes, chunks_in_flight,
            [&](am::const_bytes chunk, std::uint64_t at) { file->write(chunk, offset + at); },
            {.within = patience(from.bytes()), .buffers = &buffers_});
        return from.bytes();
    }

    /// While one chunk is read from the disk, earlier ones are in flight.
    std::uint64_t read(const am::peer& client, std::uint64_t handle, std::uint64_t offset,
                       const am::bulk& into) {
        const auto file = files_.find(client, handle);
        file->check_mode(open_mode::read);
        check_range(offset, into.bytes());
        const std::uint64_t there = file->bytes();
        const std::uint64_t bytes = std::min(there - std::min(offset, there), into.bytes());
        if (bytes == 0) return 0;
        const turn mine(turns_);
        into.part(0, bytes).push_pipelined(
            chunk_bytes, chunks_in_flight,
            [&](am::mutable_bytes chunk, std::uint64_t at) { file->read(chunk, offset + at); },
            {.within = patience(bytes), .buffers = &buffers_});
        return bytes;
    }

    open_files& files() noexcept { return files_; }

private:
    /// Waits until there is memory for another transfer.
    class turn {
    public:
        explicit turn(am::semaphore& of) : of_(of) { of_.acquire(); }
        turn(const turn&) = delete;
        turn& operator=(const turn&) = delete;
        ~turn() { of_.release(); }

    private:
        am::semaphore& of_;
    };

    static void check_range(std::uint64_t offset, std::uint64_t bytes) {
        constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        if (bytes > most || offset > most - bytes)
            throw std::runtime_error("a file cannot have an offset of " + std::to_string(offset) +
                                     ", expected less than 2^63 with the bytes that follow");
    }

    open_files files_;
    am::semaphore turns_;
    am::bulk_cache buffers_;
};

/// The first stream serves only the network; handlers run on streams that may block on disks.
am::engine_options streams_of(const server_options& options) {
    std::vector<am::stream_options> streams{{.name = "net"}};
    for (unsigned i = 0; i < options.disk_streams; ++i)
        streams.push_back({.name = "disk." + std::to_string(i), .pools = {"disk"}});
    am::engine_options all;
    all.name = "remote_write";
    all.streams = std::move(streams);
    all.pools = {{.name = "disk"}};
    all.handlers = "disk";
    all.max_running = 1024;  // Each waits on its own stack.
    return all;
}

void define_procedures(am::engine& engine, const std::shared_ptr<store>& files) {
    const auto client = [] { return am::call_context::current().from(); };
    engine.define(open_name, [files](std::string_view name, open_mode mode) {
        return files->open(am::call_context::current(), name, mode);
    });
    engine.define(write_name,
                  [files, client](std::uint64_t handle, std::uint64_t offset, am::bulk from) {
                      return files->write(client(), handle, offset, from);
                  });
    engine.define(read_name,
                  [files, client](std::uint64_t handle, std::uint64_t offset, am::bulk into) {
                      return files->read(client(), handle, offset, into);
                  });
    engine.define(sync_name,
                  [files, client](std::uint64_t handle) { files->files().sync(client(), handle); });
    engine.define(stat_name, [files](std::string_view name) { return files->files().stat(name); });
    engine.define(close_name, [files, client](std::uint64_t handle) {
        files->files().close(client(), handle);
    });
}

}  // namespace

void serve(const server_options& options, const std::function<void(const std::string&)>& ready) {
    sigset_t ends;
    ::sigemptyset(&ends);
    ::sigaddset(&ends, SIGTERM);
    ::sigaddset(&ends, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // Inherited by the engine's threads.

    am::engine engine(options.uri, streams_of(options));
    if (engine.address().empty())
        throw std::runtime_error(
            "\"" + options.uri +
            "\" does not listen, expected an address to listen on; example: tcp://127.0.0.1:0");
    const auto files = std::make_shared<store>(engine, options);
    define_procedures(engine, files);
    const auto lost = engine.on_peer_lost(
        [files](const am::peer& who, am::status) { files->files().close_all_of(who); });
    ready(engine.address());
    int which = 0;
    ::sigwait(&ends, &which);
    engine.stop();
}

}  // namespace remote_write
