// Records go into a store elsewhere, packed on their way by a codec that the store has never heard
// of: it travels with them. `inject_codec [URI [FILE]]`: the lines of a file, or some made up ones.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/inject/injection_target.hpp>
#include <amalgam/inject/injector.hpp>

namespace am = amalgam;

namespace {

/// What injected code may call here: it is a C function, exported by its name.
extern "C" int store_record(void* store, const char* text, std::size_t bytes) {
    auto* const insert = static_cast<sqlite3_stmt*>(store);
    sqlite3_bind_text(insert, 1, text, static_cast<int>(bytes), SQLITE_TRANSIENT);
    const bool stored = sqlite3_step(insert) == SQLITE_DONE;
    sqlite3_reset(insert);
    return stored ? 0 : 1;
}

/// The other process: a database, open to injected code, until standard input ends.
int serve(const std::string& uri, int address_to, int end_from) {
    sqlite3* database = nullptr;
    sqlite3_stmt* insert = nullptr;
    sqlite3_open(":memory:", &database);
    sqlite3_exec(database, "CREATE TABLE records (text TEXT); BEGIN", nullptr, nullptr, nullptr);
    sqlite3_prepare_v2(database, "INSERT INTO records VALUES (?)", -1, &insert, nullptr);
    {
        am::engine on(uri);
        am::injection_options options;
        options.allows.unsigned_too = true;  // Both processes are ours.
        options.exports["store_record"] = reinterpret_cast<void*>(&store_record);
        options.target_args = insert;
        const am::injection_target target(on, options);
        on.define("count", [&](const std::string& word) {
            sqlite3_stmt* count = nullptr;
            sqlite3_prepare_v2(database, "SELECT count(*) FROM records WHERE instr(text, ?)", -1,
                               &count, nullptr);
            sqlite3_bind_text(count, 1, word.data(), static_cast<int>(word.size()),
                              SQLITE_TRANSIENT);
            sqlite3_step(count);
            const std::int64_t found = sqlite3_column_int64(count, 0);
            sqlite3_finalize(count);
            return found;
        });
        const std::string address = on.address() + "\n";
        (void)!::write(address_to, address.data(), address.size());
        char end = 0;
        (void)!::read(end_from, &end, 1);
    }
    sqlite3_finalize(insert);
    sqlite3_close(database);
    return 0;
}

std::string made_up_records() {
    std::string all;
    for (int i = 0; i < 100000; ++i)
        all += "sensor " + std::to_string(i % 97) + " says " + std::to_string(i * 7 % 1000) + "\n";
    return all;
}

int send(const std::string& uri, const std::string& address, const std::string& records,
         const std::string& word) {
    am::engine on(uri.starts_with("tcp") ? "tcp://" : uri);
    const am::peer store = on.lookup(address);
    am::injector inject(on);
    const auto codec = inject.add(am::code_image::find("codec"));
    const am::injection message = codec.create(am::as_bytes_of(records));
    const auto result = message.call(store);
    std::uint64_t stored = 0;
    std::memcpy(&stored, result.data(), std::min(result.size(), sizeof(stored)));
    const auto found = on.procedure<std::int64_t(std::string)>("count").on(store)(word);
    std::printf("%llu records stored, %lld with \"%s\"; %zu bytes travelled as %zu\n",
                static_cast<unsigned long long>(stored), static_cast<long long>(found),
                word.c_str(), records.size(), message.payload().size());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string uri = argc > 1 ? argv[1] : "shm://";
    std::string records;
    if (argc > 2) {
        std::ifstream file(argv[2]);
        records.assign(std::istreambuf_iterator<char>(file), {});
    } else {
        records = made_up_records();
    }
    int address[2], end[2];
    if (::pipe(address) != 0 || ::pipe(end) != 0) return 1;
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(end[1]);
        return serve(uri, address[1], end[0]);
    }
    ::close(address[1]);
    std::string where(256, '\0');
    const auto got = ::read(address[0], where.data(), where.size());
    where.resize(got > 0 ? static_cast<std::size_t>(got) - 1 : 0);
    int code = 1;
    try {
        code = send(uri, where, records, "says 7");
    } catch (const am::error& why) {
        std::fprintf(stderr, "inject_codec: %s\n", why.what());
    }
    ::close(end[1]);
    ::waitpid(child, nullptr, 0);
    return code;
}
