//! `braid top` on a terminal: one table at a time; keys select, sort and enter tables.

use std::time::{Duration, Instant};

use braid_control::live::Stats;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, TableState};

use super::sheet::{Pair, Sheet, View};
use crate::failure::{Failure, Kind};

const KEYS: &str = "1-7 table   ←→ sort by   ↑↓ row   Enter into a function   Esc back   p pause   q quit";

/// The state of the display.
struct Screen {
    pair: Pair,
    view: View,
    sorted: Option<usize>,
    table: TableState,
    paused: bool,
}

/// Shows a run until the user quits; `sample` fetches the figures.
pub fn show(pair: Pair, every: Duration, mut sample: impl FnMut() -> Result<Stats, Failure>) -> Result<(), Failure> {
    let mut screen = Screen { pair, view: View::Functions, sorted: None, table: TableState::default(), paused: false };
    let failed = |error: std::io::Error| {
        Failure::new(
            Kind::Failed,
            format!("the terminal cannot be used: {error}"),
            "`braid top --once` prints one page instead",
        )
    };
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let mut run = || -> Result<(), Failure> {
        let mut sampled = Instant::now();
        loop {
            terminal.draw(|frame| screen.draw(frame)).map_err(failed)?;
            let left = every.saturating_sub(sampled.elapsed());
            if event::poll(left).map_err(failed)? {
                if let Event::Key(key) = event::read().map_err(failed)?
                    && key.kind == KeyEventKind::Press
                    && !screen.obey(key.code, key.modifiers)
                {
                    return Ok(());
                }
            } else {
                sampled = Instant::now();
                let now = sample()?;
                if !screen.paused {
                    screen.pair = Pair { before: std::mem::replace(&mut screen.pair.now, now.clone()), now };
                }
            }
        }
    };
    let shown = run();
    ratatui::restore();
    shown
}

impl Screen {
    fn sheet(&self) -> Sheet {
        let mut sheet = self.pair.sheet(&self.view);
        if let Some(column) = self.sorted {
            sheet.sort(column);
        }
        sheet
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [top, title, middle, bottom] =
            Layout::vertical([Constraint::Length(3), Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)])
                .areas(frame.area());
        let summary: Vec<Line<'_>> = self.pair.summary().into_iter().map(Line::from).collect();
        frame.render_widget(Paragraph::new(summary), top);
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let paused = if self.paused { "  (paused)" } else { "" };
        frame.render_widget(Line::styled(format!("── {}{paused} ", self.view.title()), bold), title);
        let sheet = self.sheet();
        let widths = sheet.widths().into_iter().map(|width| Constraint::Length(width as u16));
        let head = sheet.head.iter().enumerate().map(|(at, head)| {
            let style = if self.sorted == Some(at) { bold.fg(Color::Cyan) } else { bold };
            Line::styled(*head, style)
        });
        let rows = sheet.rows.iter().map(|row| Row::new(row.iter().map(|cell| cell.text.clone())));
        let table = Table::new(rows, widths)
            .header(Row::new(head))
            .column_spacing(2)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, middle, &mut self.table);
        frame.render_widget(Line::styled(KEYS, Style::new().fg(Color::DarkGray)), bottom);
    }

    /// Executes the command of a key; returns false to quit.
    fn obey(&mut self, key: KeyCode, modifiers: KeyModifiers) -> bool {
        let columns = self.pair.sheet(&self.view).head.len();
        match key {
            KeyCode::Char('q') => return false,
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char(digit @ '1'..='7') => self.turn_to(View::ALL[digit as usize - '1' as usize].0.clone()),
            KeyCode::Right => self.sorted = Some(self.sorted.map_or(0, |at| (at + 1) % columns)),
            KeyCode::Left => self.sorted = Some(self.sorted.map_or(columns - 1, |at| (at + columns - 1) % columns)),
            KeyCode::Down => self.table.select_next(),
            KeyCode::Up => self.table.select_previous(),
            KeyCode::Enter if self.view == View::Functions => {
                let sheet = self.sheet();
                if let Some(row) = self.table.selected().and_then(|at| sheet.rows.get(at)) {
                    self.turn_to(View::Function(row[0].text.clone()));
                }
            }
            KeyCode::Esc => self.turn_to(View::Functions),
            _ => {}
        }
        true
    }

    fn turn_to(&mut self, view: View) {
        self.view = view;
        self.sorted = None;
        self.table = TableState::default();
    }
}

#[cfg(test)]
mod tests {
    use braid_control::live::stats::{Function, WorkerStats};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn screen() -> Screen {
        let function = |name: &str, packets| Function { name: name.into(), packets, ..Function::default() };
        let functions = vec![function("nat", 5), function("firewall", 9)];
        let worker = WorkerStats { sets_room: 10, ..WorkerStats::default() };
        let now = Stats { functions, workers: vec![worker], seconds: 1.0, ..Stats::default() };
        let pair = Pair { before: Stats::default(), now };
        Screen { pair, view: View::Functions, sorted: None, table: TableState::default(), paused: false }
    }

    fn drawn(screen: &mut Screen) -> String {
        let mut terminal = Terminal::new(TestBackend::new(100, 12)).expect("a terminal in memory");
        terminal.draw(|frame| screen.draw(frame)).expect("it draws");
        terminal.backend().to_string()
    }

    #[test]
    fn keys_choose_tables_sort_them_and_lead_into_a_function() {
        let mut screen = screen();
        let press = |screen: &mut Screen, key| screen.obey(key, KeyModifiers::NONE);
        assert!(drawn(&mut screen).contains("nat"));
        assert!((0..3).all(|_| press(&mut screen, KeyCode::Right)));
        assert_eq!(screen.sheet().rows[0][0].text, "firewall", "sorted by packets a second");
        press(&mut screen, KeyCode::Down);
        press(&mut screen, KeyCode::Enter);
        assert_eq!(screen.view, View::Function("firewall".into()));
        press(&mut screen, KeyCode::Esc);
        press(&mut screen, KeyCode::Char('2'));
        assert!(drawn(&mut screen).contains("per batch"));
        assert!(!press(&mut screen, KeyCode::Char('q')));
    }
}
