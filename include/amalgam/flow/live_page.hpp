#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/flow/report.hpp>
#include <amalgam/rpc/ult_report.hpp>

namespace amalgam {

/// One process, as a page shows it.
struct page_process {
    std::string label{};       ///< "G2.1"
    std::string where{};       ///< "pid 4711", or "on node7"
    std::string state{};       ///< "starting", "running", or how it ended
    bool running = false;      ///< False: its cores and memory are shown as 0.
    double processor = 0;      ///< Cores in use; where page_state::run knows it, that counts.
    std::uint64_t memory = 0;  ///< Bytes; likewise.
};

/// Numbers of one kind, a row for each thing that has them.
struct page_table {
    /// One number or text of a row.
    struct cell {
        std::string text;   ///< As shown.
        double number = 0;  ///< By which rows are sorted; texts by themselves.
    };
    std::string name;                     ///< "procedures"
    std::vector<std::string> columns;     ///< Titles.
    std::size_t texts = 1;                ///< The first columns, which are no numbers.
    std::vector<std::vector<cell>> rows;  ///< In the order in which they are shown.
};

/// What a page shows at one time.
struct page_state {
    std::string state = "running";          ///< "running", "stopping", "ended", "failed" or "lost"
    std::string sentence{};                 ///< The last thing to tell; may be empty.
    std::optional<run_report> run{};        ///< So far; empty: no graph is shown.
    std::vector<page_process> processes{};  ///< In the order shown.
    std::vector<page_table> tables{};       ///< In the order shown.
};

/// What somebody at a page asked for.
struct page_request {
    /// Which button was pressed.
    enum class kind : std::uint8_t {
        stop,        ///< Of the run.
        checkpoint,  ///< Of the run, now.
        ults         ///< Of `process`: answer with tell_ults().
    };
    kind what = kind::stop;  ///< Which button.
    std::string process{};   ///< page_process::label
};

/// What a page is of, and which buttons it has.
struct page_options {
    std::string title;            ///< "./wordcount text.txt"
    bool can_stop = false;        ///< Has a button that asks for page_request::kind::stop.
    bool can_checkpoint = false;  ///< Has one for page_request::kind::checkpoint.
    bool tells_ults = false;      ///< Has one for each process that asks for its ULTs.
};

/// A live page: one HTML page, its style and scripts, and a stream of events that the page draws.
/// Whoever opens it needs the token in url(), a new one for each page unless the address names a
/// file for it: other users of this host have no part in what it shows.
///
/// Every event is a whole state, so a browser that reads slowly misses steps and is up to date with
/// its next one. A page of a former one at the same address, with the same token, goes on with this
/// one by itself.
///
/// Threads: one; a thread of its own, after start(), serves browsers.
/// Failure: the constructor throws as metrics_server's does; for an address that other hosts reach
///          it needs a key that browsers take (P-256), and no file for the token.
/// Cost:    at most 16 pages may be open, and some hundred KiB of states and lines for each that
///          reads slowly.
class live_page {
public:
    static constexpr std::size_t most_nodes = 400;      ///< Shown; further ones are counted.
    static constexpr std::size_t most_channels = 1200;  ///< Shown.
    static constexpr std::size_t most_rows = 200;       ///< Of each table.
    static constexpr std::size_t most_lines = 400;      ///< Of output, kept for browsers to come.
    /// Of one line of output; the rest is cut off.
    static constexpr std::size_t most_line_bytes = 1000;
    static constexpr std::size_t most_points = 600;            ///< Of the time lines.
    static constexpr std::size_t most_requests = 16;           ///< That wait to be taken.
    static constexpr std::chrono::milliseconds interval{500};  ///< At which a run is shown.

    /// `address`: "127.0.0.1:0", or "0.0.0.0:8642?credentials=node7&token=FILE".
    live_page(std::string_view address, page_options what);
    live_page(const live_page&) = delete;
    live_page& operator=(const live_page&) = delete;
    ~live_page();

    /// With the token: http://127.0.0.1:8642/?token=…
    std::string url() const;
    /// Readable when there are requests.
    int requests_fd() const noexcept;
    std::vector<page_request> take_requests();

    /// Serves browsers from now on. After the last fork().
    void start();
    /// What is shown from now on.
    void show(const page_state& now);
    /// A line of output.
    void log(std::string_view line);
    /// Answers those who asked for the ULTs of that process.
    void tell_ults(const std::string& process, const result<ult_report>& told);
    /// Waits until browsers have the last state, half a second at most.
    void finish() noexcept;

private:
    struct state;
    std::unique_ptr<state> state_;
};

}  // namespace amalgam
