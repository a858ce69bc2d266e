#include "text/jinja/strftime.h"

#include <array>

#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

constexpr std::array<const char*, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                              "Thursday", "Friday", "Saturday"};
constexpr std::array<const char*, 12> kMonths = {"January",   "February", "March",    "April",
                                                 "May",       "June",     "July",     "August",
                                                 "September", "October",  "November", "December"};

constexpr int64_t kDaySeconds = 86400;

struct Time {
  int64_t unix_seconds;
  int64_t year;
  int month, day, weekday, year_day;  // month from 0, weekday from Sunday, year_day from 0
  int hour, minute, second;
};

bool leap(int64_t year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// The civil calendar from a count of days, in eras of 400 years that begin in March.
Time time_of(int64_t seconds) {
  Time t{};
  t.unix_seconds = seconds;
  const int64_t days = floor_div(seconds, kDaySeconds);
  const auto rest = static_cast<int>(seconds - days * kDaySeconds);
  t.hour = rest / 3600;
  t.minute = rest / 60 % 60;
  t.second = rest % 60;
  t.weekday = static_cast<int>(((days + 4) % 7 + 7) % 7);
  const int64_t shifted = days + 719468;
  const int64_t era = floor_div(shifted, 146097);
  const int64_t day_of_era = shifted - era * 146097;
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t month = (5 * day_of_year + 2) / 153;  // from March
  t.day = static_cast<int>(day_of_year - (153 * month + 2) / 5 + 1);
  t.month = static_cast<int>(month < 10 ? month + 2 : month - 10);
  t.year = year_of_era + era * 400 + (t.month < 2 ? 1 : 0);
  constexpr std::array<int, 12> kBefore = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  t.year_day =
      kBefore[static_cast<size_t>(t.month)] + t.day - 1 + (t.month > 1 && leap(t.year) ? 1 : 0);
  return t;
}

// ISO 8601: the week and the year that it belongs to.
std::pair<int, int64_t> iso_week(const Time& t) {
  const int monday_based = (t.weekday + 6) % 7;
  const int week = (t.year_day - monday_based + 10) / 7;
  if (week < 1) {
    const int days = leap(t.year - 1) ? 366 : 365;
    return {(t.year_day + days - monday_based + 10) / 7, t.year - 1};
  }
  const int days = leap(t.year) ? 366 : 365;
  if (week == 53 && t.year_day - monday_based + 3 >= days) return {1, t.year + 1};
  return {week, t.year};
}

struct Flags {
  char pad = 0;  // - _ 0
  bool upper = false, swap = false;
  int width = -1;
};

class TimeFormatter {
 public:
  TimeFormatter(Render& render, int64_t seconds) : render_(render), time_(time_of(seconds)) {}

  std::string run(std::string_view format) {
    std::string out;
    for (size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%' || i + 1 == format.size()) {
        out.push_back(format[i]);
        continue;
      }
      const size_t start = i++;
      Flags flags;
      for (; i < format.size(); ++i) {
        if (format[i] == '-' || format[i] == '_' || format[i] == '0') {
          flags.pad = format[i];
        } else if (format[i] == '^') {
          flags.upper = true;
        } else if (format[i] == '#') {
          flags.swap = true;
        } else {
          break;
        }
      }
      Int width = -1;
      for (; i < format.size() && format[i] >= '0' && format[i] <= '9'; ++i) {
        width = (width < 0 ? 0 : width * 10) + (format[i] - '0');
        check_product(render_, width);
      }
      flags.width = static_cast<int>(width);
      if (i + 1 < format.size() && (format[i] == 'E' || format[i] == 'O')) ++i;
      if (i >= format.size() || !directive(format[i], flags, &out)) {
        out.append(format.substr(start, std::min(i + 1, format.size()) - start));
      }
      render_.meter.check_size(out.size());
    }
    return out;
  }

 private:
  void number(int64_t n, int digits, char pad, const Flags& flags, std::string* out) {
    if (flags.pad == '_') pad = ' ';
    if (flags.pad == '0') pad = '0';
    std::string text = std::to_string(n < 0 ? -n : n);
    size_t width = static_cast<size_t>(flags.width >= 0 ? flags.width : digits);
    if (flags.pad == '-') width = 0;
    if (n < 0 && width > 0) --width;
    if (text.size() < width) text.insert(0, width - text.size(), pad);
    out->append(n < 0 ? "-" : "").append(text);
  }

  void text(std::string s, const Flags& flags, std::string* out) {
    if (flags.upper || flags.swap) s = to_upper(s);
    const size_t width = flags.width > 0 ? static_cast<size_t>(flags.width) : 0;
    if (s.size() < width && flags.pad != '-') {
      s.insert(0, width - s.size(), flags.pad == '0' ? '0' : ' ');
    }
    out->append(s);
  }

  void composed(std::string_view format, const Flags& flags, std::string* out) {
    Flags outer = flags;
    outer.swap = false;
    text(run(format), outer, out);
  }

  bool directive(char c, const Flags& flags, std::string* out) {
    const Time& t = time_;
    const int hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
    const auto two = [&](int64_t n, char pad = '0') { number(n, 2, pad, flags, out); };
    switch (c) {
      case 'a':
        text(std::string(kDays[static_cast<size_t>(t.weekday)], 3), flags, out);
        break;
      case 'A':
        text(kDays[static_cast<size_t>(t.weekday)], flags, out);
        break;
      case 'b':
      case 'h':
        text(std::string(kMonths[static_cast<size_t>(t.month)], 3), flags, out);
        break;
      case 'B':
        text(kMonths[static_cast<size_t>(t.month)], flags, out);
        break;
      case 'c':
        composed("%a %b %e %H:%M:%S %Y", flags, out);
        break;
      case 'C':
        two(floor_div(t.year, 100));
        break;
      case 'd':
        two(t.day);
        break;
      case 'D':
      case 'x':
        composed("%m/%d/%y", flags, out);
        break;
      case 'e':
        two(t.day, ' ');
        break;
      case 'f':
        out->append("000000");
        break;
      case 'F':
        composed("%Y-%m-%d", flags, out);
        break;
      case 'g':
        two(iso_week(t).second % 100);
        break;
      case 'G':
        number(iso_week(t).second, 1, '0', flags, out);
        break;
      case 'H':
        two(t.hour);
        break;
      case 'I':
        two(hour12);
        break;
      case 'j':
        number(t.year_day + 1, 3, '0', flags, out);
        break;
      case 'k':
        two(t.hour, ' ');
        break;
      case 'l':
        two(hour12, ' ');
        break;
      case 'm':
        two(t.month + 1);
        break;
      case 'M':
        two(t.minute);
        break;
      case 'n':
        out->push_back('\n');
        break;
      case 'p':
        if (flags.swap) {
          out->append(t.hour < 12 ? "am" : "pm");
        } else {
          text(t.hour < 12 ? "AM" : "PM", flags, out);
        }
        break;
      case 'P':
        text(t.hour < 12 ? "am" : "pm", flags, out);
        break;
      case 'r':
        composed("%I:%M:%S %p", flags, out);
        break;
      case 'R':
        composed("%H:%M", flags, out);
        break;
      case 's':
        number(t.unix_seconds, 1, '0', flags, out);
        break;
      case 'S':
        two(t.second);
        break;
      case 't':
        out->push_back('\t');
        break;
      case 'T':
      case 'X':
        composed("%H:%M:%S", flags, out);
        break;
      case 'u':
        number(t.weekday == 0 ? 7 : t.weekday, 1, '0', flags, out);
        break;
      case 'U':
        two((t.year_day - t.weekday + 7) / 7);
        break;
      case 'V':
        two(iso_week(t).first);
        break;
      case 'w':
        number(t.weekday, 1, '0', flags, out);
        break;
      case 'W':
        two((t.year_day - (t.weekday + 6) % 7 + 7) / 7);
        break;
      case 'y':
        two(((t.year % 100) + 100) % 100);
        break;
      case 'Y':
        number(t.year, 1, '0', flags, out);
        break;
      case 'z':
      case 'Z':
        break;  // a time without a zone
      case '%':
        out->push_back('%');
        break;
      default:
        return false;
    }
    return true;
  }

  Render& render_;
  const Time time_;
};

}  // namespace

std::string format_time(Render& render, std::string_view format, int64_t unix_seconds) {
  render.meter.step(static_cast<int64_t>(format.size()));
  return TimeFormatter(render, unix_seconds).run(format);
}

}  // namespace deltad::jinja
