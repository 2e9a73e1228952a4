export { readOverview, within, type Overview, type Stretch } from './model';
export { OverviewView, type OverviewEvents, type OverviewOptions } from './view';
