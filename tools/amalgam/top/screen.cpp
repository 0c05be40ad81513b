#include "top/screen.hpp"

#include <algorithm>
#include <chrono>
#include <clocale>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#define NCURSES_NOMACROS 1  // Its functions instead: macros would change names of ours.
#include <curses.h>
#include <fmt/format.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

#include "call/shown.hpp"
#include "top/drawing.hpp"
#include "top/tables.hpp"

// Of <term.h>, whose macros would change names of ours, too.
extern "C" char* tigetstr(const char*);

namespace amalgam::tool {
namespace {

/// Reads on a thread of its own, so that keys are answered while a process is not.
class reader {
public:
    reader(number_source& from, double seconds) {
        thread_ = std::jthread([this, &from, seconds](const std::stop_token& stop) {
            const auto pause = std::chrono::duration<double>(seconds);
            std::unique_lock hold(lock_);
            do {
                reading_ = true;
                hold.unlock();
                round fresh;
                try {
                    fresh.told = from.read();
                } catch (const error& why) {
                    fresh.failed = shown(why.what());
                }
                fresh.at = top_model::clock::now();
                hold.lock();
                reading_ = false;
                news_ = std::move(fresh);
            } while (!ended_.wait_for(hold, stop, pause, [] { return false; }) &&
                     !stop.stop_requested());
        });
    }

    struct round {
        numbers_told told{};
        std::string failed{};
        top_model::clock::time_point at{};
    };
    std::optional<round> news() {
        const std::lock_guard hold(lock_);
        return std::exchange(news_, std::nullopt);
    }
    /// Begins no more reads. False: one is under way, for as long as an answer may take.
    bool stop() {
        const std::lock_guard hold(lock_);
        thread_.request_stop();
        return !reading_;
    }

private:
    std::mutex lock_;
    bool reading_ = true;
    std::condition_variable_any ended_;
    std::optional<round> news_;
    std::jthread thread_;
};

/// The terminal, until this ends.
class terminal {
public:
    terminal() {
        std::setlocale(LC_CTYPE, "");
        plain_ = std::strcmp(::nl_langinfo(CODESET), "UTF-8") != 0;
        screen_ = ::newterm(nullptr, stdout, stdin);
        if (screen_ == nullptr) {
            throw error(errc::unsupported,
                        "the terminal cannot be used, as TERM is none that is known; for a plain "
                        "list use --once");
        }
        ::set_term(screen_);
        const char* const how = ::tigetstr("cup");
        if (how == nullptr || how == reinterpret_cast<const char*>(-1)) {  // As in curses.
            ::endwin();
            ::delscreen(screen_);
            throw error(errc::unsupported,
                        "the terminal cannot be used, as one of its TERM does not move its cursor; "
                        "for a plain list use --once");
        }
        ::cbreak();
        ::noecho();
        ::keypad(stdscr, TRUE);
        ::curs_set(0);
        ::wtimeout(stdscr, 100);
        ::set_escdelay(25);
    }
    terminal(const terminal&) = delete;
    terminal& operator=(const terminal&) = delete;
    ~terminal() {
        ::endwin();
        ::delscreen(screen_);
    }

    bool plain() const noexcept { return plain_; }
    /// Whether there is none any more: reading from it does not wait then. SIGHUP says so only to
    /// those that have not been told to ignore it, as by nohup.
    static bool is_gone() {
        ::pollfd look{STDIN_FILENO, POLLIN, 0};
        return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
    }
    static int rows() { return LINES; }
    static std::size_t columns() { return static_cast<std::size_t>(COLS); }
    static void put(int row, const std::string& text, ::attr_t look = A_NORMAL) {
        if (row < 0 || row >= rows()) return;
        ::attrset(static_cast<int>(look));
        ::mvaddstr(row, 0, cut(text, columns()).c_str());
        ::attrset(A_NORMAL);
    }
    /// A line in reverse, up to the edge.
    static void put_bar(int row, const std::string& text) {
        std::string line = cut(text, columns());
        ::attrset(A_REVERSE);
        ::mvhline(row, 0, ' ', static_cast<int>(columns()));
        ::mvaddstr(row, 0, line.c_str());
        ::attrset(A_NORMAL);
    }

private:
    ::SCREEN* screen_ = nullptr;
    bool plain_ = false;
};

class top_screen {
public:
    top_screen(number_source& from, double seconds) : reads_(from, seconds) {}

    void run() {
        for (bool changed = true;;) {
            if (!view_.paused) changed = take_news() || changed;
            if (changed) draw();
            const int key = ::getch();
            changed = key != ERR;
            if (key == ERR && terminal::is_gone()) return leave();
            if (key != ERR && !take(key)) return leave();
        }
    }

private:
    /// The user does not wait for an answer that nobody wants any more. Who only looks has nothing
    /// to put away.
    void leave() {
        if (reads_.stop()) return;
        terminal_.reset();
        std::fflush(stdout);
        ::_exit(EXIT_SUCCESS);
    }
    bool take_news() {
        auto fresh = reads_.news();
        if (!fresh) return false;
        failed_ = fresh->failed;
        if (failed_.empty()) model_.take(std::move(fresh->told), fresh->at);
        tables_ = model_.tables();
        return true;
    }

    const top_table* table() const {
        if (tables_.empty()) return nullptr;
        return &tables_[std::min(view_.table, tables_.size() - 1)];
    }

    void draw() {
        ::erase();
        int row = 0;
        const std::size_t chosen =
            tables_.empty() ? 0 : static_cast<std::size_t>(table() - tables_.data());
        terminal::put(row++, tabs_of(tables_, chosen, terminal::columns()), A_BOLD);
        for (const std::string& each : model_.head())
            terminal::put(row++, each);
        if (!failed_.empty()) terminal::put(row++, failed_, A_BOLD);
        const std::size_t width = terminal::columns();
        for (const auto& each : model_.curves()) {
            constexpr std::size_t front = 20;
            if (width < front + 10 || terminal::rows() < 14) break;
            terminal::put(row++,
                          fmt::format("{:9} {:>8}  {}", each.title,
                                      written({{}, each.values.back()}, each.as),
                                      curve_text(each.values, width - front, terminal_->plain())));
        }
        draw_table(row);
        draw_foot();
        ::refresh();
    }

    void draw_table(int row) {
        const int room = terminal::rows() - row - 2;
        if (room < 1) return;
        if (table() == nullptr) return terminal::put(row, "waiting for the first answer");
        const auto lines = lines_of(*table(), view_, terminal::columns());
        terminal::put_bar(row++, lines.front());
        const std::size_t rows = lines.size() - 1, fits = static_cast<std::size_t>(room);
        view_.first = std::min(view_.first, rows > fits ? rows - fits : 0);
        for (std::size_t i = view_.first; i < std::min(rows, view_.first + fits); ++i)
            terminal::put(row++, lines[i + 1]);
    }

    void draw_foot() {
        std::string foot =
            "q quit  Tab next  arrows scroll  < > sort  r reverse  / filter  space pause";
        if (typing_)
            foot = "filter: " + view_.filter + "_  (Enter: keep, Esc: none)";
        else if (!view_.filter.empty())
            foot = fmt::format("filter \"{}\"  {}", view_.filter, foot);
        if (view_.paused) foot = "PAUSED  " + foot;
        terminal::put_bar(terminal::rows() - 1, foot);
    }

    /// False: the user quits.
    bool take(int key) {
        if (key == KEY_RESIZE) return true;  // Drawn anew.
        if (typing_) {
            take_typed(key);
            return true;
        }
        switch (key) {
            case 'q':
            case 'Q':
                return false;
            case '\t':
                return turn_to(view_.table + 1);
            case KEY_BTAB:
                return turn_to(view_.table + tables_.size() - 1);
            case KEY_RIGHT:
                if (table() != nullptr &&
                    leaves_out_last_columns(*table(), view_, terminal::columns()))
                    ++view_.columns_left_out;
                break;
            case KEY_LEFT:
                view_.columns_left_out -= view_.columns_left_out > 0;
                break;
            case '<':
                sort_by(-1);
                break;
            case '>':
            case 's':
                sort_by(1);
                break;
            case 'r':
                view_.ascending = !view_.ascending;
                break;
            case '/':
                typing_ = true;
                break;
            case ' ':
            case 'p':
                view_.paused = !view_.paused;
                break;
            case KEY_DOWN:
                ++view_.first;
                break;
            case KEY_UP:
                view_.first -= view_.first > 0;
                break;
            case KEY_NPAGE:
                view_.first += 10;
                break;
            case KEY_PPAGE:
                view_.first -= std::min<std::size_t>(view_.first, 10);
                break;
            default:
                if (key >= '1' && key <= '9' &&
                    static_cast<std::size_t>(key - '1') < tables_.size())
                    return turn_to(static_cast<std::size_t>(key - '1'));
        }
        return true;
    }

    bool turn_to(std::size_t which) {
        if (!tables_.empty()) view_.table = which % tables_.size();
        view_.first = 0;
        view_.columns_left_out = 0;
        return true;
    }

    void take_typed(int key) {
        constexpr int escape = 27, backspace = 127;
        if (key == '\n' || key == KEY_ENTER) {
            typing_ = false;
        } else if (key == escape) {
            typing_ = false;
            view_.filter.clear();
        } else if (key == KEY_BACKSPACE || key == backspace || key == '\b') {
            if (!view_.filter.empty()) view_.filter.pop_back();
        } else if (key >= ' ' && key < backspace && view_.filter.size() < 60) {
            view_.filter += static_cast<char>(key);
        }
        view_.first = 0;
    }

    void sort_by(int by) {
        if (table() == nullptr) return;
        const std::size_t columns = table()->columns.size();
        const auto known = view_.sort_by.find(table()->name);
        const std::size_t is = known == view_.sort_by.end() ? table()->sort_by : known->second;
        view_.sort_by[table()->name] =
            (is + columns + static_cast<std::size_t>(by + static_cast<int>(columns))) % columns;
    }

    top_model model_;
    std::vector<top_table> tables_;
    top_view view_;
    std::string failed_;
    bool typing_ = false;
    std::optional<terminal> terminal_{std::in_place};
    reader reads_;  // After the terminal: its thread ends first.
};

}  // namespace

void show_on_screen(number_source& from, double seconds) {
    top_screen(from, seconds).run();
}

}  // namespace amalgam::tool
