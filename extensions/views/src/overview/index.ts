export { readOverview, within, type Overview, type EventRange } from './model';
export { OverviewView, type OverviewEvents, type OverviewOptions } from './view';
