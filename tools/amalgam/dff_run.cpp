#include <cstdio>
#include <cstring>

#include "commands.hpp"

namespace amalgam::tool {
namespace {

constexpr const char* usage =
    "usage: dff_run [-V | -v G1,G2] [-p TCP] [-n] [-t SECONDS] -f CONFIG PROGRAM [ARGUMENTS]\n"
    "  -f  FastFlow's configuration file      -v  show the output of these groups only\n"
    "  -V  show that of all groups (default)  -n  print what would be started\n"
    "  -t  end the run after so many seconds  -p  transport; \"protocol\" in the file says which\n"
    "The same as: amalgam run -c CONFIG -- PROGRAM\n";

[[noreturn]] void refuse(const std::string& why) {
    std::fprintf(stderr, "dff_run: %s\n%s", why.c_str(), usage);
    throw exit_code{2};
}

}  // namespace

bool is_dff_run(const char* program) {
    const char* const slash = std::strrchr(program, '/');
    return std::strcmp(slash != nullptr ? slash + 1 : program, "dff_run") == 0;
}

std::vector<std::string> run_of_dff_run(int argc, char** argv) {
    std::vector<std::string> words{"amalgam", "run"};
    bool has_config = false;
    int at = 1;
    const auto value = [&](const char* what) -> std::string {
        if (at + 1 >= argc) refuse(std::string(argv[at]) + " needs " + what);
        return argv[++at];
    };
    for (; at < argc && argv[at][0] == '-'; ++at) {
        const std::string option = argv[at];
        if (option == "-h" || option == "--help") {
            std::fputs(usage, stdout);
            throw exit_code{0};
        } else if (option == "-f") {
            has_config = true;
            words.insert(words.end(), {"-c", value("a configuration file")});
        } else if (option == "-v") {
            words.insert(words.end(), {"--view", value("the names of groups; example: -v G1,G2")});
        } else if (option == "-t") {
            words.insert(words.end(), {"--limit", value("seconds; example: -t 60")});
        } else if (option == "-n") {
            words.push_back("--show");
        } else if (option == "-p") {
            if (const std::string name = value("a transport; example: -p TCP"); name != "TCP")
                refuse("-p " + name +
                       " is set in the configuration file, expected a line such as \"protocol\": "
                       "\"" +
                       name + "\"");
        } else if (option != "-V") {
            refuse("there is no option " + option);
        }
    }
    if (!has_config) refuse("there is no configuration file, expected -f CONFIG");
    if (at == argc) refuse("there is no program to run");
    words.push_back("--");
    words.insert(words.end(), argv + at, argv + argc);
    return words;
}

}  // namespace amalgam::tool
